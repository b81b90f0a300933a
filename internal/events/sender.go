// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// queueLength bounds how many Events wait for the apiserver; further ones are dropped.
	queueLength = 1000

	sendTimeout = 10 * time.Second

	// perSecond and atOnce limit the rate. An Event costs etcd as much as the write that it records,
	// which must not slow down when thousands of Events are due.
	perSecond = 20
	atOnce    = 50
)

// sender creates one object for each Event. client-go's broadcaster combines all Events with the
// same object, reason and action into one series, whatever their notes, so the second of two
// different notes is never seen. The limiter has dropped repetitions before.
type sender struct {
	client    kubernetes.Interface
	component string
	instance  string
	queue     chan *eventsv1.Event
	pace      *rate.Limiter
	clock     clock.PassiveClock
}

func newSender(client kubernetes.Interface, component string, clock clock.PassiveClock) *sender {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &sender{
		client: client, component: component, instance: component + "-" + host,
		queue: make(chan *eventsv1.Event, queueLength), pace: rate.NewLimiter(perSecond, atOnce), clock: clock,
	}
}

// Eventf implements events.EventRecorder for a regarding that is a reference.
func (s *sender) Eventf(regarding, _ runtime.Object, kind, reason, action, note string, args ...any) {
	ref := *regarding.(*corev1.ObjectReference)
	namespace := ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // where Events about cluster-scoped objects are
	}
	now := s.clock.Now()
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: util.GenerateEventName(ref.Name, now.UnixNano())},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: s.component,
		ReportingInstance:   s.instance,
		Type:                kind,
		Reason:              reason,
		Action:              action,
		Regarding:           ref,
		Note:                fmt.Sprintf(note, args...),
	}
	select {
	case s.queue <- event:
	default: // never block for an Event
	}
}

// run sends queued Events until ctx ends.
func (s *sender) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-s.queue:
			if s.pace.Wait(ctx) != nil {
				return // ctx has ended
			}
			s.send(ctx, event)
		}
	}
}

// send tries for about a minute and then drops the Event. A refusal is final: the namespace is
// terminating, or permissions are missing.
func (s *sender) send(ctx context.Context, event *eventsv1.Event) {
	retries := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 6}
	err := wait.ExponentialBackoffWithContext(ctx, retries, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, sendTimeout)
		defer cancel()
		_, err := s.client.EventsV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
		switch {
		case err == nil, apierrors.IsAlreadyExists(err):
			return true, nil
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			return false, err
		}
		return false, nil
	})
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("Dropped an Event", "regarding", klog.KRef(event.Regarding.Namespace, event.Regarding.Name),
			"reason", event.Reason, "err", err)
	}
}
