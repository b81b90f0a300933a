// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"time"

	"sa-controller-manager/internal/pki"
)

// state is what a process needs after a restart to publish the right bundle. It is immutable.
type state struct {
	// file is the one that was published last; nil if there was none.
	file *Bundle
	// previous are certificates that it held before; the overlap of the first ends last.
	previous []previousCert
}

// previousCert is a certificate in overlap.
type previousCert struct {
	certificate *x509.Certificate
	until       time.Time // in whole seconds, UTC
}

// current returns the certificates of the file.
func (s state) current() []*x509.Certificate {
	if s.file == nil {
		return nil
	}
	return s.file.certificates
}

// overlaps reports whether the certificate is in overlap.
func (s state) overlaps(certificate *x509.Certificate) bool {
	return slices.ContainsFunc(s.previous, func(p previousCert) bool { return p.certificate.Equal(certificate) })
}

// union returns the bundle of the file and of all that is in overlap.
func (s state) union() *Bundle {
	var previous []*x509.Certificate
	for _, p := range s.previous {
		previous = append(previous, p.certificate)
	}
	return s.file.with(previous)
}

// sort makes the order, and so the bytes of a union, depend only on the content.
func (s state) sort() {
	slices.SortFunc(s.previous, func(a, b previousCert) int {
		return cmp.Or(b.until.Compare(a.until), bytes.Compare(a.certificate.Raw, b.certificate.Raw))
	})
}

func contains(certificates []*x509.Certificate, wanted *x509.Certificate) bool {
	return slices.ContainsFunc(certificates, wanted.Equal)
}

func encodePEM(certificates ...*x509.Certificate) []byte {
	var text bytes.Buffer
	for _, certificate := range certificates {
		text.Write(pki.CertPEM(certificate))
	}
	return text.Bytes()
}

// fingerprint returns the beginning of the output of `openssl x509 -fingerprint -sha256`.
func fingerprint(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.Raw)
	return hex.EncodeToString(sum[:8])
}
