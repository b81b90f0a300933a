// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// Authority is a certificate authority for tests that need one of their own.
type Authority struct{ authority *authority }

// NewAuthority makes a certificate authority that no component trusts. It is valid for a year.
func NewAuthority(name string) (*Authority, error) {
	a, err := newAuthority(name)
	return &Authority{a}, err
}

// PEM is its certificate.
func (a *Authority) PEM() []byte { return a.authority.pem() }

// Key is its private key, PEM.
func (a *Authority) Key() ([]byte, error) { return keyutil.MarshalPrivateKeyToPEM(a.authority.key) }

// Client issues a client certificate for the given user and groups; both results
// are PEM.
func (a *Authority) Client(user string, groups ...string) (cert, key []byte, err error) {
	p, err := a.authority.client(user, groups)
	return p.cert, p.key, err
}

// Server issues a serving certificate for names and addresses; both results are PEM.
func (a *Authority) Server(hosts ...string) (cert, key []byte, err error) {
	template := newTemplate(pkix.Name{CommonName: hosts[0]})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	p, err := a.authority.issue(template)
	return p.cert, p.key, err
}

// authority is a certificate authority that lives as long as its cluster.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// pair is a certificate and its private key, both PEM.
type pair struct {
	cert, key []byte
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the key of %s: %w", name, err)
	}
	template := newTemplate(pkix.Name{CommonName: name})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create the certificate of %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse the certificate of %s: %w", name, err)
	}
	return &authority{cert: cert, key: key}, nil
}

func (a *authority) pem() []byte {
	return encodeCertificate(a.cert.Raw)
}

// server issues a serving certificate for the loopback address and the names by
// which a Pod would know kube-apiserver.
func (a *authority) server() (pair, error) {
	template := newTemplate(pkix.Name{CommonName: "kube-apiserver"})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.ParseIP(loopback)}
	return a.issue(template)
}

// client issues a certificate that kube-apiserver takes for the given user and
// groups.
func (a *authority) client(user string, groups []string) (pair, error) {
	template := newTemplate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (pair, error) {
	subject := template.Subject.CommonName
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("generate the key of %s: %w", subject, err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("issue the certificate of %s: %w", subject, err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return pair{}, fmt.Errorf("encode the key of %s: %w", subject, err)
	}
	return pair{cert: encodeCertificate(der), key: keyPEM}, nil
}

// newTemplate is valid for a year: a cluster of make run may stay up for long.
func newTemplate(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(1, 0, 0),
	}
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// WriteSigningKey makes a new private key of the given type and writes it to
// path as PEM, readable by its owner only.
func WriteSigningKey(path string, keyType KeyType) error {
	key, err := newSigningKey(keyType)
	if err != nil {
		return fmt.Errorf("generate a service account key: %w", err)
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encode a service account key: %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write a service account key: %w", err)
	}
	return nil
}

func newSigningKey(keyType KeyType) (crypto.Signer, error) {
	switch keyType {
	case RSA, "":
		return rsa.GenerateKey(rand.Reader, 2048)
	case ECDSA:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		return nil, fmt.Errorf("unknown key type %q", keyType)
	}
}
