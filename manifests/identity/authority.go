// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"sa-controller-manager/internal/pki"
)

// backdate allows for a slow clock of the API server.
const backdate = 5 * time.Minute

// ErrNoKey is returned if the key of the CA is kept elsewhere (an external CA).
var ErrNoKey = errors.New("the key of the cluster's CA is not here")

// authority is the cluster's CA. Its key is read only to sign, because a control plane with an external
// CA does not have it.
type authority struct {
	certFile, keyFile string
	now               time.Time
	// certificates are several while the CA is exchanged. kube-apiserver trusts all of them.
	certificates []*x509.Certificate
	pem          []byte
	roots        *x509.CertPool
}

// openAuthority reads the CA's certificates.
func openAuthority(dir string, now time.Time) (*authority, error) {
	a := &authority{certFile: filepath.Join(dir, "ca.crt"), keyFile: filepath.Join(dir, "ca.key"), now: now, roots: x509.NewCertPool()}
	var err error
	if a.pem, err = os.ReadFile(a.certFile); err != nil {
		return nil, fmt.Errorf("read the cluster's CA: %w", err)
	}
	if a.certificates, err = cert.ParseCertsPEM(a.pem); err != nil {
		return nil, fmt.Errorf("%s: want PEM of a certificate", a.certFile)
	}
	a.roots.AppendCertsFromPEM(a.pem)
	return a, nil
}

// key reads the CA's key, and finds the certificate that it belongs to. Errors quote nothing of the key.
func (a *authority) key() (*x509.Certificate, crypto.Signer, error) {
	data, err := os.ReadFile(a.keyFile)
	if os.IsNotExist(err) {
		return nil, nil, fmt.Errorf("%s: %w", a.keyFile, ErrNoKey)
	} else if err != nil {
		return nil, nil, fmt.Errorf("read the key of the cluster's CA: %w", err)
	}
	parsed, _ := keyutil.ParsePrivateKeyPEM(data) // its error may quote the key
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("%s has no PEM of a private key in the clear: %w", a.keyFile, ErrNoKey)
	}
	public, _ := signer.Public().(interface{ Equal(x crypto.PublicKey) bool })
	i := slices.IndexFunc(a.certificates, func(ca *x509.Certificate) bool {
		return ca.IsCA && public != nil && public.Equal(ca.PublicKey) && !a.now.Before(ca.NotBefore) && a.now.Before(ca.NotAfter)
	})
	if i < 0 {
		return nil, nil, fmt.Errorf("%s belongs to none of the %d certificates in %s that is a CA and valid at %s, by the clock of this "+
			"machine", a.keyFile, len(a.certificates), a.certFile, a.now.UTC().Format(time.RFC3339))
	}
	return a.certificates[i], signer, nil
}

// issue returns a new client certificate with its key, as PEM. It does not outlive the CA.
func (a *authority) issue(subject pkix.Name, validity time.Duration) ([]byte, error) {
	ca, signer, err := a.key()
	if err != nil {
		return nil, err
	}
	certificate, key, err := pki.Issue(&x509.Certificate{
		Subject:     subject,
		NotBefore:   a.now.Add(-backdate),
		NotAfter:    a.now.Add(validity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, signer)
	if err != nil {
		return nil, fmt.Errorf("issue the certificate of %s: %w", subject.CommonName, err)
	}
	keyPEM, err := pki.KeyPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of %s: %w", subject.CommonName, err)
	}
	return slices.Concat(pki.CertPEM(certificate), keyPEM), nil
}
