// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/serving/settings"
)

// selfSigned returns a certificate and its key, both PEM. It gives encryption without
// authentication. It is valid for a year, for localhost and for a specific bind address.
func selfSigned(bind net.IP) (cert, key []byte, err error) {
	addresses := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if bind != nil && !bind.IsUnspecified() && !bind.IsLoopback() {
		addresses = append(addresses, bind)
	}
	now := time.Now()
	made, signer, err := pki.Issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "localhost"},
		NotBefore:   now.Add(-time.Hour), // for slow clocks
		NotAfter:    now.AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: addresses,
	}, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	key, err = pki.KeyPEM(signer)
	return pki.CertPEM(made), key, err
}

// certificate returns the configured certificate, which is reloaded, or a self-signed one: that of
// --cert-dir, even if it has expired, as in KCM, or a new one.
func certificate(name string, o *settings.Port) (dynamiccertificates.CertKeyContentProvider, error) {
	if o.TLS.CertFile != "" {
		content, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", o.TLS.CertFile, o.TLS.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file %q with --tls-private-key-file %q: %w", o.TLS.CertFile, o.TLS.KeyFile, err)
		}
		return content, nil
	}
	if o.TLS.CertDir != "" {
		content, err := keptCertificate(name, o)
		if err != nil {
			return nil, fmt.Errorf("--cert-dir %q: %w", o.TLS.CertDir, err)
		}
		return content, nil
	}
	cert, key, err := selfSigned(o.BindAddress)
	if err != nil {
		return nil, fmt.Errorf("make serving certificate: %w", err)
	}
	return dynamiccertificates.NewStaticCertKeyContent("self-signed", cert, key)
}

// keptCertificate returns the certificate of --cert-dir, and creates it if both files are missing.
func keptCertificate(name string, o *settings.Port) (dynamiccertificates.CertKeyContentProvider, error) {
	certFile, keyFile := filepath.Join(o.TLS.CertDir, name+".crt"), filepath.Join(o.TLS.CertDir, name+".key")
	found, err := certutil.CanReadCertAndKey(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	if !found {
		cert, key, err := selfSigned(o.BindAddress)
		if err != nil {
			return nil, err
		}
		if err := keyutil.WriteKey(keyFile, key); err != nil {
			return nil, err
		}
		if err := certutil.WriteCert(certFile, cert); err != nil {
			return nil, err
		}
	}
	return dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", certFile, keyFile)
}
