// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watchhealth reports which watches have gone silent, because their caches may be
// stale.
//
// A Tracker wraps the transport of a client and notes when each watch last received data.
// kube-apiserver's watch cache sends a watch a bookmark about once a minute
// (k8s.io/apiserver/pkg/storage/cacher), so a healthy watch is not silent for long even if no
// object changes. Bookmarks begin once that cache is newer than the start of the watch: at
// once with kubeadm's etcd, after ten minutes or the first event with etcd's defaults. Bodies pass
// through unread and uncopied.
//
// It also notes why an informer has no list: client-go repeats some requests for minutes without a word, for example
// while kube-apiserver cannot decrypt a Secret.
//
// A silent watch fails /readyz and never /livez, because a restart would not repair a network. The
// webhook's own /readyz does not depend on it: all replicas would leave their Service together.
//
// Lifecycle: a Tracker knows a watch from its first answer until the context of the request
// ends, which for an informer is when it stops. It keeps the watch between requests: an
// informer that cannot connect has a stale cache, too.
//
// Concurrency: all methods may be called from any goroutine, and none blocks.
//
// A healthy watch must never be reported as silent.
package watchhealth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/notify"
)

const (
	// Limit is how long a watch that gets bookmarks may be silent: two of them may be late.
	Limit = 3 * time.Minute

	// longLimit is the limit of a watch without bookmarks, or before the first one. The watch ends
	// within the ten minutes that client-go asks for (tools/cache/reflector.go), and the next begins.
	longLimit = 12 * time.Minute

	// initialListTime is how long a watch may take to send the first list. Data after that is an
	// event or a bookmark, and bookmarks follow.
	initialListTime = 50 * time.Second

	// maxRefusal is how much of a refusal is read, in bytes.
	maxRefusal = 4 << 10
)

// Tracker knows the watches of a client. Build it with New.
type Tracker struct {
	clock clock.PassiveClock
	limit time.Duration
	// Connected notifies of the name of each watch that has begun, because another API server may answer now.
	Connected notify.Change[string]

	// failures are the last errors of the requests of informers, by the name of the watch, until one succeeds.
	failures sync.Map

	mu      sync.Mutex
	watches map[string]*watch
}

// watch is the watch of one resource with one selector.
type watch struct {
	// began is when the present response began, last when data was last received.
	began, last time.Time
	// cached: a watch cache serves it and sends bookmarks.
	cached bool
	// stop cancels the call of forget when the informer ends.
	stop func() bool
}

// limit returns how long it may be silent.
func (w *watch) limit(short time.Duration) time.Duration {
	if w.cached && w.last.Sub(w.began) >= initialListTime {
		return short
	}
	return longLimit
}

// New returns a Tracker with that limit for watches that get bookmarks.
func New(c clock.PassiveClock, limit time.Duration) *Tracker {
	return &Tracker{clock: c, limit: limit, watches: map[string]*watch{}}
}

// Wrap wraps a transport; pass it to rest.Config.Wrap.
func (t *Tracker) Wrap(base http.RoundTripper) http.RoundTripper {
	return &transport{base: base, tracker: t}
}

// Check returns an error that names each watch that has been silent for too long.
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
	return fmt.Errorf("no data received from %s", strings.Join(silent, ", "))
}

// Failure returns why the last request for a watch or its list has failed, empty if it has not.
func (t *Tracker) Failure(name string) string {
	failure, _ := t.failures.LoadOrStore(name, "")
	return failure.(string)
}

// nameOf returns the name of the watch that a request is for.
func nameOf(request *http.Request) string {
	query := request.URL.Query()
	name := strings.TrimPrefix(strings.TrimPrefix(request.URL.Path, "/apis/"), "/api/")
	if selector := query.Get("fieldSelector") + query.Get("labelSelector"); selector != "" {
		name += " (" + selector + ")"
	}
	return name
}

// begin notes a watch that the API server has accepted.
func (t *Tracker) begin(name string, request *http.Request) {
	query := request.URL.Query()
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.watches[name]
	if w == nil {
		w = &watch{}
		t.watches[name] = w
	} else {
		w.stop()
	}
	w.began = t.clock.Now()
	w.last = w.began
	// Only a watch cache can send the first list as events; later watches do not ask for it.
	w.cached = w.cached || query.Get("sendInitialEvents") == "true"
	w.stop = context.AfterFunc(request.Context(), func() { t.forget(name, w) })
}

func (t *Tracker) received(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.watches[name]; w != nil {
		w.last = t.clock.Now()
	}
}

// forget is called when an informer has stopped.
func (t *Tracker) forget(name string, w *watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watches[name] == w {
		delete(t.watches, name)
	}
}

func isWatch(request *http.Request) bool {
	value := request.URL.Query().Get("watch")
	return request.Method == http.MethodGet && (value == "true" || value == "1")
}

// isInformers reports whether an informer sends a request: only these lists name a resourceVersion.
func isInformers(request *http.Request) bool {
	return request.Method == http.MethodGet && (isWatch(request) || request.URL.Query().Has("resourceVersion"))
}

// transport notes watches.
type transport struct {
	base    http.RoundTripper
	tracker *Tracker
}

// RoundTrip is http.RoundTripper's.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.base.RoundTrip(request)
	if !isInformers(request) || request.Context().Err() != nil {
		return response, err
	}
	name := nameOf(request)
	switch {
	case err != nil:
		t.tracker.failures.Store(name, err.Error())
	case response.StatusCode != http.StatusOK:
		why := refusal(response)
		if last, _ := t.tracker.failures.Swap(name, why); last != why {
			klog.FromContext(request.Context()).Error(errors.New(why), "Failed to list or watch", "watch", name)
		}
	case isWatch(request):
		t.tracker.failures.Store(name, "")
		t.tracker.begin(name, request)
		t.tracker.Connected.Notify(name)
		response.Body = &body{ReadCloser: response.Body, received: func() { t.tracker.received(name) }}
	}
	return response, err
}

// refusal returns what kube-apiserver answers. The body can still be read.
func refusal(response *http.Response) string {
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // the caller meets the error, too
	response.Body = &restored{io.MultiReader(bytes.NewReader(text), response.Body), response.Body}
	message := response.Status
	if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil); err == nil {
		if status, ok := object.(*metav1.Status); ok && status.Message != "" {
			message = status.Message
		}
	}
	return fmt.Sprintf("kube-apiserver answered %d: %s", response.StatusCode, message)
}

// restored is a body whose begin was read.
type restored struct {
	io.Reader
	io.Closer
}

// WrappedRoundTripper lets client-go close idle connections
// (k8s.io/apimachinery/pkg/util/net).
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.base }

// body calls received on every read of data.
type body struct {
	io.ReadCloser

	received func()
}

// Read is io.Reader's.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.received()
	}
	return n, err
}
