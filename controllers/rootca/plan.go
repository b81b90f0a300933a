// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"crypto/x509"
	"slices"
	"time"
)

// maxUnion is the largest union in bytes. The rest of the 1 MiB that the API allows
// is for what else is in such an object.
const maxUnion = 768 << 10

// decision is what follows from the file, the state and the time.
type decision struct {
	published *Bundle
	state     state
	// next is when the first former ends; zero if there is none.
	next time.Time

	// What is to be told: formers whose overlap begins and ends, and those that are
	// dropped before their time because the union would be too large.
	began, ended, crowded []*x509.Certificate
}

// plan decides what is published. known is the state as it was last written, or zero
// if there is none. What known calls current and the file does not hold any more
// stays for the time of overlap; what is in overlap already ends when it was to end,
// and at the latest overlap from now, so that neither an edited state nor a clock that
// jumped keeps a former CA for longer. With an overlap of 0 the file alone is published.
func plan(file *Bundle, known state, now time.Time, overlap time.Duration) decision {
	d := decision{state: state{current: unique(file.certificates)}}
	latest := ceil(now.Add(overlap))
	keep := func(certificate *x509.Certificate, until time.Time) bool {
		if contains(d.state.current, certificate) || d.state.holds(certificate) {
			return false
		}
		if overlap <= 0 || !until.After(now) {
			d.ended = append(d.ended, certificate)
			return false
		}
		d.state.formers = append(d.state.formers, former{certificate, until})
		return true
	}
	for _, f := range known.formers {
		keep(f.certificate, earlier(f.until, latest))
	}
	for _, certificate := range unique(known.current) {
		if !known.holds(certificate) && keep(certificate, latest) {
			d.began = append(d.began, certificate)
		}
	}
	sortFormers(d.state.formers)
	d.crowd()
	d.publish(file)
	return d
}

// crowd drops formers that no object has room for, those that would end first first.
func (d *decision) crowd() {
	size := len(encodePEM(d.state.current...))
	for i, f := range d.state.formers {
		if size += len(encodePEM(f.certificate)); size <= maxUnion {
			continue
		}
		for _, dropped := range d.state.formers[i:] {
			d.crowded = append(d.crowded, dropped.certificate)
		}
		d.state.formers = d.state.formers[:i]
		d.began = slices.DeleteFunc(d.began, func(c *x509.Certificate) bool { return contains(d.crowded, c) })
		return
	}
}

// publish takes the file as it is unless something is in overlap.
func (d *decision) publish(file *Bundle) {
	d.published = file
	if len(d.state.formers) == 0 {
		return
	}
	all := slices.Clone(d.state.current)
	for _, f := range d.state.formers {
		all = append(all, f.certificate)
	}
	d.published = newBundle(encodePEM(all...), all)
	d.next = d.state.formers[len(d.state.formers)-1].until
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// ceil is the first whole second that is not before t.
func ceil(t time.Time) time.Time {
	whole := t.UTC().Truncate(time.Second)
	if whole.Before(t) {
		whole = whole.Add(time.Second)
	}
	return whole
}
