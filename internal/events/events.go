// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events records Events of events.k8s.io/v1: what was deleted, what was refused and why.
// Success is not an Event; metrics count it.
//
// kube-controller-manager records none about Secrets, so that a user who wonders why one is empty
// or gone needs its log; an Event answers where the question is asked.
//
// A Recorder never blocks its caller: an Event that does not fit into its queue is
// dropped. Each object has a budget, so that one misbehaving object cannot flood the
// apiserver, and a note is not repeated while it is fresh. No note may contain a token or
// a key. A Recorder is safe for concurrent use.
package events

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
)

const (
	// Every object may have a burst of Events at once and one more each interval.
	burst    = 5
	interval = 5 * time.Minute

	// repeatAfter is when the same note is sent again: kube-apiserver keeps Events for an hour by
	// default.
	repeatAfter = time.Hour

	// limitedObjects bounds the number of objects whose limits are kept; the least recently seen
	// one is dropped first.
	limitedObjects = 4096

	// noteLimit is the longest note the API accepts, in bytes
	// (pkg/apis/core/validation/events.go, NoteLengthLimit).
	noteLimit = 1024
)

// Recorder sends Events. The regarding reference must identify the object; reason and action are
// CamelCase words to filter by. The zero value is not usable; a nil Recorder drops all Events.
type Recorder struct {
	sink    events.EventRecorder
	sender  *sender // nil if the sink was given
	limiter *limiter
}

// NewRecorder returns a Recorder that reports as component.
func NewRecorder(client kubernetes.Interface, component string) *Recorder {
	sender := newSender(client, component, clock.RealClock{})
	return &Recorder{sink: sender, sender: sender, limiter: newLimiter(clock.RealClock{})}
}

// NewRecorderTo returns a Recorder that writes to sink, for tests. It needs no Run.
func NewRecorderTo(sink events.EventRecorder, clock clock.PassiveClock) *Recorder {
	return &Recorder{sink: sink, limiter: newLimiter(clock)}
}

// Run sends Events until ctx ends, also those that were queued before it was called.
func (r *Recorder) Run(ctx context.Context) error {
	r.sender.run(ctx)
	return nil
}

// Warn records a Warning Event: something was refused or could not be done.
func (r *Recorder) Warn(regarding *corev1.ObjectReference, reason, action, note string) {
	r.record(regarding, corev1.EventTypeWarning, reason, action, note)
}

// Normal records a Normal Event: something was done that an operator may ask about.
func (r *Recorder) Normal(regarding *corev1.ObjectReference, reason, action, note string) {
	r.record(regarding, corev1.EventTypeNormal, reason, action, note)
}

func (r *Recorder) record(regarding *corev1.ObjectReference, kind, reason, action, note string) {
	if r == nil || !r.limiter.allow(regarding, reason+"\x00"+note) {
		return
	}
	if len(note) > noteLimit {
		note = strings.ToValidUTF8(note[:noteLimit-3], "") + "..."
	}
	r.sink.Eventf(regarding, nil, kind, reason, action, "%s", note)
}
