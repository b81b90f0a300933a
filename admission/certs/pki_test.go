// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"

	"sa-controller-manager/internal/pki"
)

var certPEM = pki.CertPEM

func (a *authority) keyPEM() ([]byte, error) { return pki.KeyPEM(a.key) }

// issue returns a certificate of any content, self-signed without an issuer.
func issue(issuer *authority, template *x509.Certificate) (*authority, error) {
	if issuer == nil {
		issuer = &authority{}
	}
	made, key, err := pki.Issue(template, issuer.cert, issuer.key)
	return &authority{cert: made, key: key}, err
}
