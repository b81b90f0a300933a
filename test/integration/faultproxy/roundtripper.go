// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// faultRoundTripper writes every request down and applies the rules to it.
type faultRoundTripper struct {
	next    http.RoundTripper
	journal *journal
	rules   atomic.Pointer[[]*Rule]
}

func newFaultRoundTripper(next http.RoundTripper) *faultRoundTripper {
	t := &faultRoundTripper{next: next, journal: newJournal()}
	t.use(nil)
	return t
}

func (t *faultRoundTripper) use(rules []*Rule) { t.rules.Store(&rules) }

// RoundTrip implements http.RoundTripper.
func (t *faultRoundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	entry := t.journal.begin(readRequest(r))
	r, err := whole(r)
	if err != nil {
		entry.ended()
		return nil, err
	}
	response, err := t.fault(entry.request)(r, &servedRoundTripper{t.next, entry})
	if err != nil {
		entry.ended()
		return nil, err
	}
	entry.answered(response.StatusCode)
	response.Body = entry.track(response.Body)
	return response, nil
}

// whole is the request with a body that has come: what a fault keeps can be passed on although
// its client stands still since.
func whole(r *http.Request) (*http.Request, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	body, err := io.ReadAll(r.Body)
	if err := errors.Join(err, r.Body.Close()); err != nil {
		return nil, fmt.Errorf("read a request: %w", err)
	}
	r = r.WithContext(r.Context()) // a copy: the caller's stays as it is
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r, nil
}

func (t *faultRoundTripper) fault(request Request) Fault {
	for _, rule := range *t.rules.Load() {
		if rule.applies(request) {
			return rule.Fault
		}
	}
	return Forward
}

// servedRoundTripper notes what kube-apiserver answers.
type servedRoundTripper struct {
	next  http.RoundTripper
	entry *entry
}

// RoundTrip implements http.RoundTripper.
func (t *servedRoundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err == nil {
		t.entry.served(response.StatusCode)
	}
	return response, err
}
