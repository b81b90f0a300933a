// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"crypto/x509"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"
)

// published knows since when all that is registered has had which certificates.
type published struct {
	mu    sync.Mutex
	since map[string]time.Time // by DER: in the caBundle of every entry
	empty time.Time            // nothing is registered, so that nobody can be refused
}

// observe takes the entries that exist at a time.
func (p *published) observe(entries []entry, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(entries) == 0 {
		p.since = nil
		if p.empty.IsZero() {
			p.empty = now
		}
		return
	}
	p.empty = time.Time{}
	common := certificates(entries[0].ClientConfig.CABundle)
	for _, one := range entries[1:] {
		common = intersect(common, certificates(one.ClientConfig.CABundle))
	}
	since := map[string]time.Time{}
	for der := range common {
		since[der] = now
		if before, ok := p.since[der]; ok {
			since[der] = before
		}
	}
	p.since = since
}

// forget is for the end of watching: from then on nothing is known.
func (p *published) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.empty = nil, time.Time{}
}

func (p *published) of(certificate *x509.Certificate) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.empty.IsZero() {
		return p.empty, true
	}
	since, ok := p.since[string(certificate.Raw)]
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

func intersect(a, b map[string]bool) map[string]bool {
	common := map[string]bool{}
	for der := range a {
		if b[der] {
			common[der] = true
		}
	}
	return common
}
