// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// observation is the input of plan.
type observation struct {
	secret *corev1.Secret // nil if there is none
	held   *state         // the state that this process has used last, nil at first
	now    time.Time
	// known reports whether callers have had a CA long enough to accept its leaves.
	known func(*x509.Certificate) bool
	// fresh issues a new CA.
	fresh func() (*authority, error)
}

type action int

const (
	keep action = iota
	write
	refuse
)

// decision is the output of plan.
type decision struct {
	action action
	// wanted is the new content of the Secret. It has no meaning with refuse.
	wanted state
	reason string
}

// draft is the state that plan works on, and the reasons of its changes.
type draft struct {
	observation
	state

	reasons []string
}

// plan decides on the content of the Secret. It drops a CA from the caBundle only if it has expired
// or has been replaced twice.
func plan(o observation) (decision, error) {
	d := draft{observation: o}
	if o.secret != nil {
		found := read(o.secret)
		if found.foreign != "" {
			return decision{action: refuse, reason: found.foreign}, nil
		}
		d.state = found.state
		if found.damage != "" {
			d.because(found.damage)
		}
	}
	for _, step := range []func() error{d.restore, d.expire, d.ensureActive, d.rollOver} {
		if err := step(); err != nil {
			return decision{}, err
		}
	}
	result := decision{wanted: d.state, reason: strings.Join(d.reasons, "; ")}
	if len(d.reasons) > 0 {
		result.action = write
	}
	return result, nil
}

func (d *draft) because(reason string) { d.reasons = append(d.reasons, reason) }

// restore repairs damage and a deletion from memory, because callers have that state already. After
// a deletion it also announces a successor: a user who deletes the Secret to get rid of its key
// succeeds, without a failed call.
func (d *draft) restore() error {
	damaged := len(d.reasons) > 0
	switch {
	case d.secret == nil && d.held == nil:
		d.because("there was none")
	case d.secret == nil:
		d.state = *d.held
		d.because("it was deleted")
		return d.announce()
	case damaged && d.held != nil:
		d.state = *d.held
	}
	return nil
}

// expire drops expired CAs.
func (d *draft) expire() error {
	if d.next != nil && d.over(d.next.cert) {
		d.next = nil
		d.because("the announced CA has expired")
	}
	if d.previous != nil && d.over(d.previous) {
		d.previous = nil
		d.because("the previous CA has expired")
	}
	return nil
}

// ensureActive provides a valid CA to issue leaves.
func (d *draft) ensureActive() error {
	if d.active != nil && !d.over(d.active.cert) {
		return nil
	}
	if d.active != nil {
		d.because("the active CA has expired")
	}
	err := d.announce() // a fresh one, if none was announced before
	d.active, d.next = d.next, nil
	return err
}

// rollOver takes the next step of a rollover once it is due. It never announces and promotes a CA
// in the same step.
func (d *draft) rollOver() error {
	switch {
	case d.next == nil && !d.now.Before(twoThirds(d.active.cert)):
		d.because("the active CA has lived two thirds of its life")
		return d.announce()
	case d.next != nil && d.secret != nil && (d.known(d.next.cert) || !d.now.Before(lastCall(d.state))):
		d.previous, d.active, d.next = d.active.cert, d.next, nil
		d.because("the announced CA is known to callers")
	}
	return nil
}

// announce provides a next CA, unless there is one.
func (d *draft) announce() (err error) {
	if d.next == nil {
		d.next, err = d.fresh()
	}
	return err
}

func (d *draft) over(certificate *x509.Certificate) bool {
	return !d.now.Before(certificate.NotAfter)
}

// lastCall returns when an announced CA is promoted even without confirmation that callers have it,
// such as when a user maintains the caBundle: a twelfth of its life before the active one ends, but
// not before half of what was left has passed.
func lastCall(s state) time.Time {
	end := s.active.cert.NotAfter
	life := end.Sub(s.active.cert.NotBefore)
	left := end.Sub(s.next.cert.NotBefore.Add(backdate))
	return end.Add(-min(life/12, left/2))
}
