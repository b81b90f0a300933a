// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/internal/stateobject"
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

// decision is the output of plan.
type decision struct {
	wanted state
	// reason is why it must be written, "" if the Secret has it.
	reason string
	// repairs reports that another client has deleted or damaged what was there.
	repairs bool
}

// draft is the state that plan works on, and the reasons of its changes.
type draft struct {
	observation
	state

	reasons []string
}

// plan decides on the content of the Secret. It drops a CA from the caBundle only if it has expired
// or has been replaced twice. It fails for a Secret of another version.
func plan(o observation) (decision, error) {
	d := draft{observation: o}
	repairs, err := d.start()
	for _, step := range []func() error{d.ensureActive, d.rollOver} {
		if err == nil {
			err = step()
		}
	}
	return decision{d.state, strings.Join(d.reasons, "; "), repairs}, err
}

func (d *draft) because(reason string) { d.reasons = append(d.reasons, reason) }

// start takes the state of the Secret. Damage and a deletion are repaired from memory, because callers have that
// state already. After a deletion it also announces a successor: a user who deletes the Secret to get
// rid of its key succeeds, without a failed call.
func (d *draft) start() (repairs bool, err error) {
	if d.secret == nil && d.held == nil {
		d.because("there was none")
		return false, nil
	}
	if d.secret == nil {
		d.state = *d.held
		d.because("it was deleted")
		return true, d.announce()
	}
	d.state, err = read(d.secret)
	if _, unknown := errors.AsType[*stateobject.UnknownVersionError](err); unknown || err == nil {
		return false, err
	}
	d.because(err.Error())
	if d.held != nil {
		d.state = *d.held
	}
	return true, nil
}

// ensureActive provides a valid CA to issue leaves, and drops expired ones.
func (d *draft) ensureActive() (err error) {
	if d.next != nil && d.over(d.next.cert) {
		d.next = nil
	}
	if d.previous != nil && d.over(d.previous) {
		d.previous = nil
		d.because("the previous CA has expired")
	}
	if d.active != nil && d.over(d.active.cert) {
		d.active = nil
		d.because("the active CA has expired")
	}
	if d.active == nil {
		err = d.announce() // a fresh one, if none was announced before
		d.active, d.next = d.next, nil
	}
	return err
}

// rollOver takes the next step of a rollover once it is due. It never announces and promotes a CA
// in the same step. Without confirmation that callers have the announced one, such as when a user maintains the
// caBundle, it is promoted in the middle between its announcement and the end of the active one.
func (d *draft) rollOver() error {
	switch {
	case d.next == nil && !d.now.Before(twoThirds(d.active.cert)):
		d.because("the active CA has lived two thirds of its life")
		return d.announce()
	case d.next != nil && d.secret != nil &&
		(d.known(d.next.cert) || d.active.cert.NotAfter.Sub(d.now) < d.now.Sub(d.next.cert.NotBefore)):
		d.previous, d.active, d.next = d.active.cert, d.next, nil
		d.because("the announced CA takes over")
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
