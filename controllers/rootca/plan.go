// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"crypto/x509"
	"time"
)

// maxUnion is the largest bundle in bytes, that of the file with those in overlap. The rest of the 1 MiB that
// the API allows is for the other fields of the object.
const maxUnion = 768 << 10

// decision is the result of plan.
type decision struct {
	published *Bundle
	state     state

	// To be reported: certificates whose overlap begins or ends, and those in overlap that the file
	// holds again.
	began, ended, returned []*x509.Certificate
}

// plan decides which bundle is published: the file and, behind it, the previous certificates. known is
// the last state, or zero. Certificates of its file that are not in this one stay for overlap. Those
// in overlap already keep their end, but not later than overlap from now, so that neither an edited
// state nor a clock that jumped keeps a previous CA for longer. With an overlap of 0 only the file is
// published.
func plan(file *Bundle, known state, now time.Time, overlap time.Duration) *decision {
	d := &decision{state: state{file: file}}
	latest := ceil(now.Add(overlap))
	keep := func(certificate *x509.Certificate, until time.Time) bool {
		if contains(file.certificates, certificate) || d.state.overlaps(certificate) {
			return false
		}
		if overlap <= 0 || !until.After(now) {
			d.ended = append(d.ended, certificate)
			return false
		}
		d.state.previous = append(d.state.previous, previousCert{certificate, until})
		return true
	}
	for _, p := range known.previous {
		if contains(file.certificates, p.certificate) && !contains(known.current(), p.certificate) {
			d.returned = append(d.returned, p.certificate)
		}
		if p.until.After(latest) {
			p.until = latest
		}
		keep(p.certificate, p.until)
	}
	for _, certificate := range known.current() {
		if !known.overlaps(certificate) && keep(certificate, latest) {
			d.began = append(d.began, certificate)
		}
	}
	d.state.sort()
	d.published = d.state.union()
	return d
}

// ceil rounds t up to a whole second.
func ceil(t time.Time) time.Time { return t.UTC().Add(time.Second - 1).Truncate(time.Second) }
