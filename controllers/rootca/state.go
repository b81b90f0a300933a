// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"time"
)

// state is what a process needs after a restart to publish the right bundle. It is immutable.
type state struct {
	// current are the certificates of the file, in its order.
	current []*x509.Certificate
	// previous are those that the file held before; the overlap of the first ends last.
	previous []previousCert
}

// previousCert is a certificate in overlap.
type previousCert struct {
	certificate *x509.Certificate
	until       time.Time // in whole seconds, UTC
}

func contains(certificates []*x509.Certificate, wanted *x509.Certificate) bool {
	return slices.ContainsFunc(certificates, wanted.Equal)
}

// overlaps reports whether the certificate is in overlap.
func (s state) overlaps(certificate *x509.Certificate) bool {
	return slices.ContainsFunc(s.previous, func(p previousCert) bool { return p.certificate.Equal(certificate) })
}

// merge adds the state that was read to the state that this process decided on before it could read.
// The ends of overlaps in the latter win.
func merge(found, held state) state {
	merged := state{current: slices.Clone(held.current), previous: slices.Clone(held.previous)}
	for _, certificate := range found.current {
		if !contains(merged.current, certificate) && !merged.overlaps(certificate) {
			merged.current = append(merged.current, certificate)
		}
	}
	for _, p := range found.previous {
		if !contains(merged.current, p.certificate) && !merged.overlaps(p.certificate) {
			merged.previous = append(merged.previous, p)
		}
	}
	return merged
}

// sortPrevious makes the order, and so the bytes of a union, depend only on the content.
func sortPrevious(previous []previousCert) {
	slices.SortFunc(previous, func(a, b previousCert) int {
		return cmp.Or(b.until.Compare(a.until), bytes.Compare(a.certificate.Raw, b.certificate.Raw))
	})
}

// unique removes duplicates.
func unique(certificates []*x509.Certificate) []*x509.Certificate {
	var once []*x509.Certificate
	for _, certificate := range certificates {
		if !contains(once, certificate) {
			once = append(once, certificate)
		}
	}
	return once
}

func encodePEM(certificates ...*x509.Certificate) []byte {
	var text bytes.Buffer
	for _, certificate := range certificates {
		// Writes to a Buffer do not fail.
		_ = pem.Encode(&text, &pem.Block{Type: certificateBlock, Bytes: certificate.Raw})
	}
	return text.Bytes()
}

// fingerprint returns the beginning of the output of `openssl x509 -fingerprint -sha256`.
func fingerprint(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.Raw)
	return hex.EncodeToString(sum[:8])
}
