// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watchhealth tells when a watch has gone silent, so that a process that works
// on an old picture of the cluster can say so.
//
// A Tracker wraps the transport of a client and notes when each watch was last
// heard of. kube-apiserver's watch cache sends a watch a bookmark about each minute
// (k8s.io/apiserver/pkg/storage/cacher), so a healthy one is not silent for long,
// however little happens. It begins to do so when its picture is newer than that
// which the watch began with: with kubeadm's etcd that is at once, with etcd's
// defaults after ten minutes or the first event. Bodies pass through unread and
// uncopied.
//
// Lifecycle: a Tracker knows a watch from its first answer until the context of the
// request ends, which for an informer is when it stops. In between it remembers the
// watch, also while nobody holds one: an informer that cannot connect again is as
// blind as one that hears nothing.
//
// Concurrency: all methods may be called from any goroutine, and none blocks.
//
// What must never happen: a silence that is reported although the watch is healthy.
package watchhealth

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// Limit is how long a watch may be silent that gets bookmarks: two of them may be
	// late.
	Limit = 3 * time.Minute

	// longLimit is for a watch that gets none, or none yet. It at least ends, within
	// the ten minutes that client-go asks for (tools/cache/reflector.go), and the next
	// one begins.
	longLimit = 12 * time.Minute

	// settling is how long the first list may come through a watch. What comes later is
	// an event or a bookmark, and bookmarks follow.
	settling = 50 * time.Second
)

// Tracker knows the watches of a client. Its zero value is of no use; see New.
type Tracker struct {
	clock clock.PassiveClock
	limit time.Duration

	mu      sync.Mutex
	watches map[string]*heard
}

// heard is what is known of the watch of one resource with one selector.
type heard struct {
	// began is when its present stream did, last when something last came.
	began, last time.Time
	// cached is whether it is served by a watch cache, which is what sends bookmarks.
	cached bool
	// stop ends what awaits the end of the informer.
	stop func() bool
}

// limit is how long it may be silent.
func (h *heard) limit(short time.Duration) time.Duration {
	if h.cached && h.last.Sub(h.began) >= settling {
		return short
	}
	return longLimit
}

// New returns a Tracker that takes a watch which gets bookmarks for silent after
// limit.
func New(c clock.PassiveClock, limit time.Duration) *Tracker {
	return &Tracker{clock: c, limit: limit, watches: map[string]*heard{}}
}

// Wrap is for rest.Config.Wrap.
func (t *Tracker) Wrap(base http.RoundTripper) http.RoundTripper {
	return &transport{base: base, tracker: t}
}

// Check is an error that names each watch that is silent for too long.
func (t *Tracker) Check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	var silent []string
	for name, w := range t.watches {
		if silence := now.Sub(w.last); silence > w.limit(t.limit) {
			silent = append(silent, fmt.Sprintf("%s for %v", name, silence.Round(time.Second)))
		}
	}
	if len(silent) == 0 {
		return nil
	}
	slices.Sort(silent)
	return fmt.Errorf("nothing heard of %s", strings.Join(silent, ", "))
}

// begin notes a watch that the API server has accepted, and returns its name.
func (t *Tracker) begin(request *http.Request) string {
	query := request.URL.Query()
	name := strings.TrimPrefix(strings.TrimPrefix(request.URL.Path, "/apis/"), "/api/")
	if selector := query.Get("fieldSelector") + query.Get("labelSelector"); selector != "" {
		name += " (" + selector + ")"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.watches[name]
	if w == nil {
		w = &heard{}
		t.watches[name] = w
	} else {
		w.stop()
	}
	w.began = t.clock.Now()
	w.last = w.began
	// Only a watch cache can send the first list as events; later watches ask for none.
	w.cached = w.cached || query.Get("sendInitialEvents") == "true"
	w.stop = context.AfterFunc(request.Context(), func() { t.forget(name, w) })
	return name
}

func (t *Tracker) hear(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.watches[name]; w != nil {
		w.last = t.clock.Now()
	}
}

// forget is called when an informer has stopped.
func (t *Tracker) forget(name string, w *heard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watches[name] == w {
		delete(t.watches, name)
	}
}

func isWatch(request *http.Request) bool {
	watch := request.URL.Query().Get("watch")
	return request.Method == http.MethodGet && (watch == "true" || watch == "1")
}

// transport notes watches.
type transport struct {
	base    http.RoundTripper
	tracker *Tracker
}

// RoundTrip is http.RoundTripper's.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.base.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusOK || !isWatch(request) {
		return response, err
	}
	name := t.tracker.begin(request)
	response.Body = &body{ReadCloser: response.Body, heard: func() { t.tracker.hear(name) }}
	return response, nil
}

// WrappedRoundTripper lets client-go close idle connections
// (k8s.io/apimachinery/pkg/util/net).
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.base }

// body notes when something comes.
type body struct {
	io.ReadCloser

	heard func()
}

// Read is io.Reader's.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.heard()
	}
	return n, err
}
