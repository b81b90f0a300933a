// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"
)

// registered records since when every registered caBundle has contained which certificates.
type registered struct {
	mu    sync.Mutex
	since map[string]time.Time // by DER of certificates in every caBundle
	empty time.Time            // since when nothing is registered, so that no call can fail

	// inherited are the certificates that another replica or an earlier leader had registered at a
	// time.
	inherited []*x509.Certificate
	at        time.Time
}

// observe records the caBundles that are registered at a time.
func (r *registered) observe(caBundles [][]byte, inherited bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, common := r.since, inAll(caBundles)
	r.since = map[string]time.Time{}
	if len(caBundles) > 0 {
		r.empty = time.Time{}
	} else if r.empty.IsZero() {
		r.empty = now
	}
	for _, one := range common {
		der := string(one.Raw)
		r.since[der] = now
		if since, ok := before[der]; ok {
			r.since[der] = since
		}
	}
	if inherited {
		r.inherited, r.at = common, now
	}
}

// inAll returns the certificates that all caBundles contain. An invalid caBundle contains none.
func inAll(caBundles [][]byte) []*x509.Certificate {
	var common []*x509.Certificate
	for i, caBundle := range caBundles {
		has, err := cert.ParseCertsPEM(caBundle)
		if err != nil {
			return nil
		}
		if i == 0 {
			common = has
			continue
		}
		common = slices.DeleteFunc(common, func(one *x509.Certificate) bool { return !slices.ContainsFunc(has, one.Equal) })
	}
	return common
}

// of returns since when callers have had a certificate, false if that is unknown.
func (r *registered) of(certificate *x509.Certificate) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.empty.IsZero() {
		return r.empty, true
	}
	since, ok := r.since[string(certificate.Raw)]
	return since, ok
}

// covers reports whether callers have had the CA of a certificate for at least propagation.
func (r *registered) covers(serving *tls.Certificate, now time.Time, propagation time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.empty.IsZero() {
		return now.Sub(r.empty) >= propagation
	}
	options := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}
	for der, since := range r.since {
		if now.Sub(since) >= propagation {
			addDER(options.Roots, []byte(der))
		}
	}
	for _, der := range serving.Certificate[1:] {
		addDER(options.Intermediates, der)
	}
	_, err := serving.Leaf.Verify(options)
	return err == nil
}

func addDER(pool *x509.CertPool, der []byte) {
	if certificate, err := x509.ParseCertificate(der); err == nil {
		pool.AddCert(certificate)
	}
}

// lasting returns the inherited certificates until overlap has passed.
func (r *registered) lasting(now time.Time, overlap time.Duration) (certificates []*x509.Certificate, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until = r.at.Add(overlap); !now.Before(until) {
		return nil, until
	}
	return r.inherited, until
}
