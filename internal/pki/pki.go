// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki issues certificates with a new ECDSA key: the serving certificates of the webhook and of
// the secure port, and client certificates of a cluster's CA. An RSA key of client-go's certutil takes
// up to 0.2 s of processor time, which is longer than the rest of a start.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Issue returns a certificate for a new P-256 key, with a random serial number. It is signed by
// issuerKey and does not outlive issuer, or is self-signed without an issuer.
func Issue(template, issuer *x509.Certificate, issuerKey crypto.Signer) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.BasicConstraintsValid = true
	if issuer == nil {
		issuer, issuerKey = template, key
	}
	if issuer.NotAfter.Before(template.NotAfter) {
		template.NotAfter = issuer.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return certificate, key, err
}

// CertPEM returns the certificate as PEM.
func CertPEM(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: certificate.Raw})
}

// KeyPEM returns the key as PEM of PKCS#8.
func KeyPEM(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyutil.PrivateKeyBlockType, Bytes: der}), nil
}
