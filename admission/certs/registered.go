// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"
)

// registered knows since when every registered caBundle has had which certificates.
type registered struct {
	mu    sync.Mutex
	since map[string]time.Time // by DER: in every caBundle
	empty time.Time            // nothing is registered, so that nobody can be refused
}

// observe takes the caBundles that are registered at a time.
func (r *registered) observe(caBundles [][]byte, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(caBundles) == 0 {
		r.since = nil
		if r.empty.IsZero() {
			r.empty = now
		}
		return
	}
	r.empty = time.Time{}
	since := map[string]time.Time{}
	for der := range certificates(caBundles[0]) {
		since[der] = now
		if before, ok := r.since[der]; ok {
			since[der] = before
		}
	}
	for _, caBundle := range caBundles[1:] {
		has := certificates(caBundle)
		maps.DeleteFunc(since, func(der string, _ time.Time) bool { return !has[der] })
	}
	r.since = since
}

// forget makes nothing known.
func (r *registered) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.empty = nil, time.Time{}
}

// of is since when callers have had a certificate, false if that is not known.
func (r *registered) of(certificate *x509.Certificate) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.empty.IsZero() {
		return r.empty, true
	}
	since, ok := r.since[string(certificate.Raw)]
	return since, ok
}

// certificates are those of a caBundle by their DER; none if it is damaged.
func certificates(caBundle []byte) map[string]bool {
	parsed, err := cert.ParseCertsPEM(caBundle)
	if err != nil {
		return nil
	}
	all := map[string]bool{}
	for _, one := range parsed {
		all[string(one.Raw)] = true
	}
	return all
}
