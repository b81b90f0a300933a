// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"time"
)

// servingCertLifetime is that of the certificate KCM makes for itself. Nothing
// can be made to trust this one, so its end stops no client that works today.
const servingCertLifetime = 365 * 24 * time.Hour

// selfMadeCertificate makes a certificate for this process alone: it is kept in
// memory and signed by itself, so it encrypts and proves nothing. It is valid
// for localhost and, if that is a certain one, for the bind address.
func selfMadeCertificate(now time.Time, bind net.IP) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("generate key: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: programName},
		// A client's clock may be behind ours.
		NotBefore:   now.Add(-time.Hour),
		NotAfter:    now.Add(servingCertLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if bind != nil && !bind.IsUnspecified() && !bind.IsLoopback() {
		template.IPAddresses = append(template.IPAddresses, bind)
	}
	// A nil serial number asks for a random one.
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
