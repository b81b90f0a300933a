// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events records Events: what was deleted, what was refused and why.
// Success is not an Event; metrics count it.
//
// kube-controller-manager records none about Secrets, so that a user who wonders why one is empty
// or gone needs its log; an Event answers where the question is asked.
//
// A Recorder never blocks its caller. client-go's recorder, below it, counts the same note again,
// combines too many different ones of one reason, and drops what its queue cannot hold. No note
// may contain a token or a key. A Recorder is safe for concurrent use.
package events

import (
	"context"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

const (
	// burst is how many Events of one reason an object may have together, by client-go's defaults one
	// more every five minutes. It is as many different notes as client-go keeps apart.
	burst = 10

	// flushTimeout bounds how long Run sends what is queued when it must end. An Event takes
	// milliseconds; a kube-apiserver that is down must not delay the end.
	flushTimeout = time.Second

	// noteLimit keeps Events small, in bytes: the limit of events.k8s.io/v1.
	noteLimit = 1024
)

// Sink is the method of client-go's EventRecorder that a Recorder calls.
type Sink interface {
	Event(regarding runtime.Object, kind, reason, note string)
}

// Recorder sends Events. The regarding reference must identify the object; reason is a CamelCase
// word to filter by. The zero value is not usable; a nil Recorder drops all Events.
type Recorder struct {
	sink        Sink
	broadcaster record.EventBroadcaster // nil for a Recorder of NewRecorderTo
	flushed     chan struct{}
}

// NewRecorder returns a Recorder that reports as component. It records immediately; Run ends it.
func NewRecorder(client kubernetes.Interface, component string) *Recorder {
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: burst, SpamKeyFunc: objectAndReason,
	}))
	flushed := make(chan struct{})
	broadcaster.StartRecordingToSink(&flushingSink{
		EventSink: &typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")}, flushed: flushed,
	})
	host, _ := os.Hostname() // only names the replica
	source := corev1.EventSource{Component: component, Host: host}
	return &Recorder{sink: broadcaster.NewRecorder(scheme.Scheme, source), broadcaster: broadcaster, flushed: flushed}
}

// NewRecorderTo returns a Recorder that writes to sink, for tests. It needs no Run.
func NewRecorderTo(sink Sink) *Recorder { return &Recorder{sink: sink} }

// objectAndReason is what has a separate budget: a flood of one reason must not drop the only
// Event of another, because most are recorded once.
func objectAndReason(event *corev1.Event) string {
	about := event.InvolvedObject
	return strings.Join([]string{about.Kind, about.Namespace, about.Name, string(about.UID), event.Reason}, "/")
}

// Run waits until ctx ends, then sends what is queued for no longer than flushTimeout. Later Events
// are dropped.
func (r *Recorder) Run(ctx context.Context) error {
	<-ctx.Done()
	defer r.broadcaster.Shutdown()
	r.sink.Event(&corev1.ObjectReference{}, corev1.EventTypeNormal, lastReason, "")
	select {
	case <-r.flushed:
	case <-time.After(flushTimeout):
	}
	return nil
}

// lastReason is of the Event that is sent nowhere: those before it have been sent.
const lastReason = "Last"

type flushingSink struct {
	record.EventSink
	flushed chan struct{}
}

func (s *flushingSink) Create(event *corev1.Event) (*corev1.Event, error) {
	if event.Reason == lastReason {
		close(s.flushed)
		return event, nil
	}
	return s.EventSink.Create(event)
}

// Warn records a Warning Event: something was refused or could not be done.
func (r *Recorder) Warn(regarding *corev1.ObjectReference, reason, note string) {
	r.record(regarding, corev1.EventTypeWarning, reason, note)
}

// Normal records a Normal Event: something was done that an operator may ask about.
func (r *Recorder) Normal(regarding *corev1.ObjectReference, reason, note string) {
	r.record(regarding, corev1.EventTypeNormal, reason, note)
}

func (r *Recorder) record(regarding *corev1.ObjectReference, kind, reason, note string) {
	if r == nil {
		return
	}
	if len(note) > noteLimit {
		note = strings.ToValidUTF8(note[:noteLimit-3], "") + "..."
	}
	r.sink.Event(regarding, kind, reason, note)
}
