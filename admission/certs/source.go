// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"sa-controller-manager/internal/notify"
)

// The names of certificates in the metric.
const (
	nameServing  = "serving"
	nameActiveCA = "serving-ca"
)

// Source holds a serving certificate and the caBundle to verify it with, and notifies of that if one of them
// changes. It is empty until its Files or Managed has filled it.
type Source struct {
	notify.Change[[]byte]

	clock   clock.PassiveClock
	metrics *Metrics
	current atomic.Pointer[snapshot]

	registered registered
	observed   func() // called after each change of registered
}

// snapshot is immutable.
type snapshot struct {
	serving *tls.Certificate // nil while there is none
	bundle  []byte
	caEnds  time.Time // zero for files
	problem error     // why serving is nil, or the last error
}

func newSource(clock clock.PassiveClock, metrics *Metrics) *Source {
	s := &Source{clock: clock, metrics: metrics, observed: func() {}}
	s.current.Store(&snapshot{problem: errors.New("the serving certificate is not loaded yet")})
	return s
}

// GetCertificate implements tls.Config.GetCertificate. It fails while there is no certificate.
func (s *Source) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	current := s.current.Load()
	if current.serving == nil {
		return nil, current.problem
	}
	return current.serving, nil
}

// CABundle returns the PEM to register. It is empty while there is no certificate, and for files
// without a CA if none is needed. Callers must not modify it.
func (s *Source) CABundle() []byte { return s.current.Load().bundle }

// Ready returns nil if there is a certificate that is valid now.
func (s *Source) Ready() error {
	current := s.current.Load()
	if current.serving == nil {
		return current.problem
	}
	leaf, now := current.serving.Leaf, s.clock.Now()
	if now.Before(leaf.NotBefore) {
		return fmt.Errorf("the serving certificate is valid from %s on", leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	if now.After(leaf.NotAfter) {
		return fmt.Errorf("the serving certificate expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// Note returns the last error and until when the certificate that is served is valid, "" without an error.
func (s *Source) Note() string {
	current := s.current.Load()
	if current.serving == nil || current.problem == nil {
		return ""
	}
	until := current.serving.Leaf.NotAfter.UTC().Format(time.RFC3339)
	return fmt.Sprintf("%v; the present certificate is valid until %s", current.problem, until)
}

// Registered receives the caBundles that kube-apiserver has now, one of each webhook: a CA that has
// been in all of them for a while is safe to serve with. It is called after each change. Inherited
// means that another replica or an earlier leader has written them.
func (s *Source) Registered(caBundles [][]byte, inherited bool) {
	s.registered.observe(caBundles, inherited, s.clock.Now())
	s.observed()
}

// set serves next. Only one goroutine of its owner calls it.
func (s *Source) set(next *snapshot) {
	last := s.current.Swap(next)
	s.metrics.show(nameServing, next.serving.Leaf.NotAfter)
	s.metrics.show(nameActiveCA, next.caEnds)
	if last.serving != next.serving || !bytes.Equal(last.bundle, next.bundle) {
		s.Notify(next.bundle)
	}
}

// fail records an error. It does not change what is served.
func (s *Source) fail(err error) {
	next := *s.current.Load()
	next.problem = err
	s.current.Store(&next)
}
