// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/util/cert"

	"sa-controller-manager/internal/pki"
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
	ca, key, err := pki.Issue(&x509.Certificate{
		// The time distinguishes two CAs of one cluster, for users and in chains.
		Subject:        pkix.Name{CommonName: "sa-controller-manager-webhook-ca@" + now.UTC().Format("2006-01-02T15:04:05.000Z")},
		NotBefore:      now.Add(-backdate),
		NotAfter:       now.Add(lifetime),
		KeyUsage:       x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:           true,
		MaxPathLenZero: true,
	}, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("issue a serving CA: %w", err)
	}
	return &authority{cert: ca, key: key}, nil
}

// leaf issues a serving certificate for hosts, which are IP addresses or DNS names. It
// does not outlive the CA.
func (a *authority) leaf(now time.Time, lifetime time.Duration, hosts []string) (*tls.Certificate, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "sa-controller-manager-webhook"},
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(lifetime),
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
	leaf, key, err := pki.Issue(template, a.cert, a.key)
	if err != nil {
		return nil, fmt.Errorf("issue a serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// readAuthority decodes one CA certificate and its private key, both PEM. Errors quote nothing of
// either.
func readAuthority(certPEM, keyPEM []byte) (*authority, error) {
	certificate, err := readCA(certPEM)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, errors.New("the private key is not the one of the certificate, in PEM")
	}
	return &authority{cert: certificate, key: pair.PrivateKey.(crypto.Signer)}, nil //nolint:forcetypeassert // as crypto/tls has checked
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

// twoThirds returns when the successor of a certificate is due.
func twoThirds(certificate *x509.Certificate) time.Time {
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	return certificate.NotAfter.Add(-life / 3)
}
