// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"crypto/x509"
	"slices"
	"time"
)

// maxUnion is the largest union in bytes. The rest of the 1 MiB that the API allows is for the other
// fields of the object.
const maxUnion = 768 << 10

// decision is the result of plan.
type decision struct {
	published *Bundle
	state     state
	// next is when the first overlap ends; zero if there is none.
	next time.Time

	// To be reported: certificates whose overlap begins or ends, those that are dropped early
	// because the union would be too large, and those in overlap that the file holds again.
	began, ended, evicted, returned []*x509.Certificate
}

// plan decides which bundle is published. known is the last written state, or zero. Certificates
// that known has as current and the file does not hold any more stay for overlap. Those in overlap
// already keep their end, but not later than overlap from now, so that neither an edited state nor
// a clock that jumped keeps a previous CA for longer. Ended ones stay for grace. With an overlap of
// 0 only the file is published.
func plan(file *Bundle, known state, now time.Time, overlap, grace time.Duration) decision {
	d := decision{state: state{current: unique(file.certificates)}}
	latest := ceil(now.Add(overlap))
	keep := func(certificate *x509.Certificate, until time.Time) bool {
		if contains(d.state.current, certificate) || d.state.overlaps(certificate) {
			return false
		}
		if overlap <= 0 || !until.Add(grace).After(now) {
			d.ended = append(d.ended, certificate)
			return false
		}
		d.state.previous = append(d.state.previous, previousCert{certificate, until})
		return true
	}
	for _, p := range known.previous {
		if contains(d.state.current, p.certificate) && !contains(known.current, p.certificate) {
			d.returned = append(d.returned, p.certificate)
		}
		keep(p.certificate, earlier(p.until, latest))
	}
	for _, certificate := range unique(known.current) {
		if !known.overlaps(certificate) && keep(certificate, latest) {
			d.began = append(d.began, certificate)
		}
	}
	sortPrevious(d.state.previous)
	d.evict()
	d.publish(file)
	return d
}

// evict drops previous certificates that do not fit into an object, beginning with those that would
// end first.
func (d *decision) evict() {
	size := len(encodePEM(d.state.current...))
	for i, p := range d.state.previous {
		if size += len(encodePEM(p.certificate)); size <= maxUnion {
			continue
		}
		for _, dropped := range d.state.previous[i:] {
			d.evicted = append(d.evicted, dropped.certificate)
		}
		d.state.previous = d.state.previous[:i]
		d.began = slices.DeleteFunc(d.began, func(c *x509.Certificate) bool { return contains(d.evicted, c) })
		return
	}
}

// publish publishes the file as it is unless a certificate is in overlap.
func (d *decision) publish(file *Bundle) {
	d.published = file
	if len(d.state.previous) == 0 {
		return
	}
	all := slices.Clone(d.state.current)
	for _, p := range d.state.previous {
		all = append(all, p.certificate)
	}
	d.published = newBundle(encodePEM(all...), all)
	d.next = d.state.previous[len(d.state.previous)-1].until
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// ceil rounds t up to a whole second.
func ceil(t time.Time) time.Time {
	whole := t.UTC().Truncate(time.Second)
	if whole.Before(t) {
		whole = whole.Add(time.Second)
	}
	return whole
}
