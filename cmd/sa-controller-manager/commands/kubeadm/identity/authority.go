// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
	// key signs, and certificate is the one that it belongs to.
	certificate *x509.Certificate
	key         crypto.Signer
}

// certificatePair is a certificate and its private key, both PEM.
type certificatePair struct{ cert, key []byte }

// openAuthority reads the CA's certificate.
func openAuthority(dir string, now time.Time) (*authority, error) {
	a := &authority{certFile: filepath.Join(dir, "ca.crt"), keyFile: filepath.Join(dir, "ca.key"), now: now}
	data, err := os.ReadFile(a.certFile)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's CA: %w", err)
	}
	certificates, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil, fmt.Errorf("%s: want PEM of a certificate", a.certFile)
	}
	a.certificates, a.pem, a.roots = certificates, data, x509.NewCertPool()
	for _, certificate := range certificates {
		a.roots.AddCert(certificate)
	}
	return a, nil
}

// usable returns why kube-apiserver would accept nothing that a certificate of the CA has signed.
func (a *authority) usable(ca *x509.Certificate) error {
	switch {
	case !ca.IsCA:
		return fmt.Errorf("%s: the certificate of %q is not a CA certificate", a.certFile, ca.Subject.CommonName)
	case !a.now.Before(ca.NotAfter):
		expired := ca.NotAfter.UTC().Format(time.RFC3339)
		return fmt.Errorf("%s: the CA expired on %s; no certificate that it signs is accepted", a.certFile, expired)
	case a.now.Before(ca.NotBefore):
		return fmt.Errorf("%s: the CA is valid from %s on; is the clock right?", a.certFile, ca.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// openKey reads the CA's key once. Errors quote nothing of the key.
func (a *authority) openKey(warn io.Writer) error {
	if a.key != nil {
		return nil
	}
	data, err := os.ReadFile(a.keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", a.keyFile, ErrNoKey)
	} else if err != nil {
		return fmt.Errorf("read the key of the cluster's CA: %w", err)
	}
	if block, _ := pem.Decode(data); block != nil && (block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "") {
		return fmt.Errorf("%s is encrypted, and in the clear %w", a.keyFile, ErrNoKey)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return fmt.Errorf("%s: want PEM of a private key", a.keyFile)
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return fmt.Errorf("%s: the key cannot sign", a.keyFile)
	}
	public, ok := signer.Public().(interface{ Equal(x crypto.PublicKey) bool })
	var useless error
	for _, certificate := range a.certificates {
		if !ok || !public.Equal(certificate.PublicKey) {
			continue
		}
		if useless = a.usable(certificate); useless == nil {
			a.certificate = certificate
			break
		}
	}
	if a.certificate == nil {
		return cmp.Or(useless, fmt.Errorf("%s belongs to none of the %d certificates in %s", a.keyFile, len(a.certificates), a.certFile))
	}
	a.key = signer
	if info, err := os.Stat(a.keyFile); err == nil && info.Mode().Perm()&0o004 != 0 {
		fmt.Fprintf(warn, "Warning: all users of this machine can read %s, the key of the cluster's CA; chmod 600 it.\n", a.keyFile)
	}
	return nil
}

// issue returns a new client certificate. It does not outlive the CA.
func (a *authority) issue(subject pkix.Name, now time.Time, validity time.Duration) (*certificatePair, error) {
	certificate, key, err := pki.Issue(&x509.Certificate{
		Subject:     subject,
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(validity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.certificate, a.key)
	if err != nil {
		return nil, fmt.Errorf("issue the certificate of %s: %w", subject.CommonName, err)
	}
	keyPEM, err := pki.KeyPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of %s: %w", subject.CommonName, err)
	}
	return &certificatePair{cert: pki.CertPEM(certificate), key: keyPEM}, nil
}
