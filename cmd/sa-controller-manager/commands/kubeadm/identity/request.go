// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/manifests"
)

// Files beside the kubeconfig while a certificate has to be signed elsewhere. The operator adds
// signedFile.
const (
	requestKeyFile = "client.key"
	requestFile    = "client.csr"
	signedFile     = "client.crt"
)

// externallySigned returns the certificate that was signed for our request. If there is none it writes
// the request and returns an error that says what to do. why is why the CA's key cannot sign.
func (c Config) externallySigned(ca *authority, why error) (*certificatePair, error) {
	key, err := c.requestKey()
	if err != nil {
		return nil, err
	}
	signed, err := os.ReadFile(c.path(signedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; have %s signed by the cluster's CA as a client certificate (extendedKeyUsage clientAuth, CN=%s, no O) "+
			"and put the certificate, as PEM, into %s", why, c.path(requestFile), manifests.User, c.path(signedFile))
	} else if err != nil {
		return nil, err // it names the path
	}
	chain, err := pair(signed, key)
	if err == nil {
		err = acceptable(chain, manifests.User, ca.roots, c.Clock.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not accepted: %w; want the certificate for %s, signed by the CA in %s",
			c.path(signedFile), err, c.path(requestFile), ca.certFile)
	}
	return &certificatePair{cert: signed, key: key}, nil
}

// requestKey returns the key of the request. It writes both if they are missing.
func (c Config) requestKey() ([]byte, error) {
	data, err := os.ReadFile(c.path(requestKeyFile))
	made := errors.Is(err, fs.ErrNotExist)
	if made {
		if data, err = keyutil.MakeEllipticPrivateKeyPEM(); err != nil {
			return nil, fmt.Errorf("generate the key of %s: %w", manifests.User, err)
		}
		err = c.write(requestKeyFile, data)
	}
	if err != nil {
		return nil, err // it names the path
	}
	if _, err := os.Stat(c.path(requestFile)); err == nil && !made {
		return data, nil
	}
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("%s: want PEM of a private key; remove it to get a new one", c.path(requestKeyFile))
	}
	request, err := cert.MakeCSR(key, &pkix.Name{CommonName: manifests.User}, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: sign a request with it: %w", c.path(requestKeyFile), err)
	}
	return data, c.write(requestFile, request)
}

// removeRequest removes the files of a finished request.
func (c Config) removeRequest() error {
	// The key goes last: a key alone leads to a new request.
	return errors.Join(atomicfile.Remove(c.path(signedFile)), atomicfile.Remove(c.path(requestFile)),
		atomicfile.Remove(c.path(requestKeyFile)))
}
