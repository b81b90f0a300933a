// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"io"
	"sync"
	"time"
)

// journal is the list of all requests.
type journal struct {
	mu      sync.Mutex
	entries []*entry
	changed chan struct{} // closed and replaced by every change
}

// entry is a request in the journal.
type entry struct {
	journal *journal
	request Request
}

func newJournal() *journal {
	return &journal{changed: make(chan struct{})}
}

func (j *journal) begin(request Request) *entry {
	request.Began = time.Now()
	e := &entry{journal: j, request: request}
	j.change(func() { j.entries = append(j.entries, e) })
	return e
}

// change runs do under the lock and wakes who awaits.
func (j *journal) change(do func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	do()
	close(j.changed)
	j.changed = make(chan struct{})
}

func (j *journal) selected(match Match) []Request {
	found, _ := j.snapshot(match)
	return found
}

// snapshot returns the matching requests and a channel that is closed once that
// may have changed.
func (j *journal) snapshot(match Match) ([]Request, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []Request
	for _, e := range j.entries {
		if match(e.request) {
			found = append(found, e.request)
		}
	}
	return found, j.changed
}

// answered notes that kube-apiserver has answered and the client is getting that.
func (e *entry) answered(code int) {
	e.journal.change(func() { e.request.Served, e.request.Code = code, code })
}

// ended notes that the exchange is over, with or without an answer.
func (e *entry) ended() {
	e.journal.change(func() { e.request.Open = false })
}

// track has the entry know when the answer's body has been read to its end.
func (e *entry) track(body io.ReadCloser) io.ReadCloser { return &trackedBody{body, e} }

type trackedBody struct {
	io.ReadCloser

	entry *entry
}

// Close implements io.Closer.
func (b *trackedBody) Close() error {
	err := b.ReadCloser.Close()
	b.entry.ended()
	return err
}
