// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"

	"sa-controller-manager/internal/pki"
)

// registered records since when every registered caBundle has contained which certificates, and which of
// them may be in use. All are by their DER.
type registered struct {
	mu    sync.Mutex
	since map[string]time.Time
	used  map[string]time.Time // when last
}

// observe records the caBundles that are registered at a time. Those that another replica or an earlier leader
// has registered are in use.
func (r *registered) observe(caBundles [][]byte, inherited bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.since
	r.since = map[string]time.Time{}
	for _, one := range inAll(caBundles) {
		der := string(one.Raw)
		r.since[der] = now
		if since, ok := before[der]; ok {
			r.since[der] = since
		}
		if inherited {
			r.uses(der, now)
		}
	}
}

func (r *registered) uses(der string, now time.Time) {
	if r.used == nil {
		r.used = map[string]time.Time{}
	}
	r.used[der] = now
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

// verify reports whether callers have had a CA of a certificate long enough to accept it.
func (r *registered) verify(certificate *x509.Certificate, chain [][]byte, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	options := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}
	for der, since := range r.since {
		if now.Sub(since) >= propagation {
			addDER(options.Roots, []byte(der))
		}
	}
	for _, der := range chain {
		addDER(options.Intermediates, der)
	}
	_, err := certificate.Verify(options)
	return err == nil
}

func addDER(pool *x509.CertPool, der []byte) {
	if certificate, err := x509.ParseCertificate(der); err == nil {
		pool.AddCert(certificate)
	}
}

// bundle returns the caBundle of those that are in use now, or have been within the overlap.
func (r *registered) bundle(inUse []*x509.Certificate, now time.Time, overlap time.Duration) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range inUse {
		r.uses(string(one.Raw), now)
	}
	maps.DeleteFunc(r.used, func(_ string, last time.Time) bool { return now.Sub(last) >= overlap })
	var bundle bytes.Buffer
	for _, der := range slices.Sorted(maps.Keys(r.used)) {
		bundle.Write(pki.CertPEM(&x509.Certificate{Raw: []byte(der)}))
	}
	return bundle.Bytes()
}
