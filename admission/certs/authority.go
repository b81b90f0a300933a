// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// backdate allows for slow clocks of callers and of other replicas.
const backdate = time.Hour

// authority is a certificate with its key, usually a serving CA, whose key signs leaves.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority issues a self-signed CA that may sign leaves.
func newAuthority(now time.Time, lifetime time.Duration) (*authority, error) {
	ca, err := issue(nil, &x509.Certificate{
		// The time distinguishes two CAs of one cluster, for users and in chains.
		Subject:        pkix.Name{CommonName: "sa-controller-manager-webhook-ca@" + now.UTC().Format("2006-01-02T15:04:05.000Z")},
		NotBefore:      now.Add(-backdate),
		NotAfter:       now.Add(lifetime),
		KeyUsage:       x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:           true,
		MaxPathLenZero: true,
	})
	if err != nil {
		return nil, fmt.Errorf("issue a serving CA: %w", err)
	}
	return ca, nil
}

// leaf issues a serving certificate for hosts, which are IP addresses or DNS names. It
// does not outlive the CA.
func (a *authority) leaf(now time.Time, lifetime time.Duration, hosts []string) (*tls.Certificate, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "sa-controller-manager-webhook"},
		NotBefore:   now.Add(-backdate),
		NotAfter:    earlier(now.Add(lifetime), a.cert.NotAfter),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	leaf, err := issue(a, template)
	if err != nil {
		return nil, fmt.Errorf("issue a serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.cert.Raw}, PrivateKey: leaf.key, Leaf: leaf.cert}, nil
}

// issue creates a key and a certificate for it from issuer, self-signed without an issuer.
// CreateCertificate chooses a random serial number.
func issue(issuer *authority, template *x509.Certificate) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template.BasicConstraintsValid = true
	if issuer == nil {
		issuer = &authority{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{cert: certificate, key: key}, err
}

// readAuthority decodes one CA certificate and its private key, both PEM. Errors quote nothing of
// either.
func readAuthority(certPEM, keyPEM []byte) (*authority, error) {
	certificate, err := readCA(certPEM)
	if err != nil {
		return nil, err
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, errors.New("the private key is not a private key in PEM")
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, errors.New("the private key cannot sign")
	}
	public, ok := key.Public().(interface{ Equal(x crypto.PublicKey) bool })
	if !ok || !public.Equal(certificate.PublicKey) {
		return nil, errors.New("the private key does not belong to the certificate")
	}
	return &authority{cert: certificate, key: key}, nil
}

// readCA decodes PEM of exactly one CA certificate.
func readCA(certPEM []byte) (*x509.Certificate, error) {
	certificates, err := cert.ParseCertsPEM(certPEM)
	if err != nil || len(certificates) != 1 {
		return nil, errors.New("expected one certificate in PEM")
	}
	if ca := certificates[0]; ca.IsCA && ca.BasicConstraintsValid {
		return ca, nil
	}
	return nil, errors.New("the certificate is not a CA")
}

func certPEM(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: certificate.Raw})
}

// keyPEM returns the key as PEM of PKCS#8.
func (a *authority) keyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, errors.New("encode the key of the serving CA")
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyutil.PrivateKeyBlockType, Bytes: der}), nil
}

// twoThirds returns when the successor of a certificate is due.
func twoThirds(certificate *x509.Certificate) time.Time {
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	return certificate.NotAfter.Add(-life / 3)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
