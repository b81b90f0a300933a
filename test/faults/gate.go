// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"io"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"
)

// gate is what the answers of all watches pass through, those too that are open already
// when a fault begins.
type gate struct {
	mu    sync.Mutex
	open  chan struct{} // closed unless the gate is shut
	only  string        // the resource that it is shut for, "" for all
	delay time.Duration

	held atomic.Int64 // pieces of watches that were
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

// shut has the watches of one resource say nothing, those of all if it is "", while their connections
// are well.
func (g *gate) shut(resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.only = make(chan struct{}), resource
}

// slow has every piece of a watch come late.
func (g *gate) slow(by time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = by
}

// release undoes all of it.
func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = 0
	if !isClosed(g.open) {
		close(g.open)
	}
}

// state is what holds a watch of resource up.
func (g *gate) state(resource string) (<-chan struct{}, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.only != "" && g.only != resource {
		return newGate().open, g.delay
	}
	return g.open, g.delay
}

// pass is the fault of every watch, which is none while the gate is open.
func (g *gate) pass(request *http.Request, forward http.RoundTripper) (*http.Response, error) {
	response, err := forward.RoundTrip(request)
	if err == nil {
		response.Body = &gatedBody{ReadCloser: response.Body, gate: g, resource: path.Base(request.URL.Path), closed: make(chan struct{})}
	}
	return response, err
}

type gatedBody struct {
	io.ReadCloser

	gate     *gate
	resource string
	closed   chan struct{}
	once     sync.Once
}

// Close implements io.Closer.
func (b *gatedBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}

// Read implements io.Reader.
func (b *gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	open, delay := b.gate.state(b.resource)
	if n > 0 && (delay > 0 || !isClosed(open)) {
		b.gate.held.Add(1)
	}
	select {
	case <-open:
	case <-b.closed:
		return 0, io.ErrUnexpectedEOF
	}
	select {
	case <-time.After(delay):
	case <-b.closed:
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// trickle has a body come in small pieces.
func trickle(request *http.Request, forward http.RoundTripper) (*http.Response, error) {
	response, err := forward.RoundTrip(request)
	if err == nil {
		response.Body = &tricklingBody{ReadCloser: response.Body, request: request}
	}
	return response, err
}

type tricklingBody struct {
	io.ReadCloser

	request *http.Request
}

// Read implements io.Reader.
func (b *tricklingBody) Read(p []byte) (int, error) {
	const piece = 256
	select {
	case <-time.After(5 * time.Millisecond):
	case <-b.request.Context().Done():
		return 0, b.request.Context().Err()
	}
	return b.ReadCloser.Read(p[:min(len(p), piece)])
}
