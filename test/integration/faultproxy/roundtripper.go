// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
)

// holdingRoundTripper writes every request down and keeps some of them.
type holdingRoundTripper struct {
	next    http.RoundTripper
	journal journal

	mu    sync.Mutex
	holds []hold
}

// hold keeps what it matches until the channel is closed.
type hold struct {
	match Match
	until <-chan struct{}
}

// wait returns once nothing keeps the request any more. A client that gives up meanwhile is not waited for.
func (t *holdingRoundTripper) wait(ctx context.Context, request Request) error {
	t.mu.Lock()
	holds := slices.Clone(t.holds)
	t.mu.Unlock()
	for _, hold := range holds {
		if !hold.match(request) {
			continue
		}
		select {
		case <-hold.until:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (t *holdingRoundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	request := t.journal.begin(readRequest(r))
	response, err := t.pass(r, *request)
	if err != nil {
		t.journal.ended(request)
		return nil, err
	}
	t.journal.answered(request, response.StatusCode)
	response.Body = trackedBody{response.Body, func() { t.journal.ended(request) }}
	return response, nil
}

func (t *holdingRoundTripper) pass(r *http.Request, read Request) (*http.Response, error) {
	r, err := whole(r)
	if err != nil {
		return nil, err
	}
	if err := t.wait(r.Context(), read); err != nil {
		return nil, err
	}
	return t.next.RoundTrip(r)
}

// whole is the request with a body that has come: what is kept can be passed on although
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
