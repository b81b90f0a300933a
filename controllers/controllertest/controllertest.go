// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllertest has what the tests of several controllers share: it fills caches by
// hand, and returns the requests, Events and series of a controller. Only tests may import it.
package controllertest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/events"
)

// World surrounds a controller: caches that hold what a test puts there, in front of a fake API
// server with the live objects.
type World struct {
	Client    *fake.Clientset
	Clock     *clocktesting.FakeClock
	Recorded  *clientevents.FakeRecorder
	Registry  metrics.KubeRegistry
	Informers *informers.Informers
}

// NewWorld begins at now, with empty caches.
func NewWorld(now time.Time, live ...runtime.Object) *World {
	client := fake.NewClientset(live...)
	return &World{
		Client:    client,
		Clock:     clocktesting.NewFakeClock(now),
		Recorded:  clientevents.NewFakeRecorder(100),
		Registry:  metrics.NewKubeRegistry(),
		Informers: informers.New(client, 0),
	}
}

// Recorder records into the world.
func (w *World) Recorder() *events.Recorder { return events.NewRecorderTo(w.Recorded, w.Clock) }

// Cache puts objects into the caches as the informers would, and skips those that no controller
// watches.
func (w *World) Cache(t testing.TB, objects ...runtime.Object) {
	t.Helper()
	in := w.Informers
	for _, object := range objects {
		var informer cache.SharedIndexInformer
		var cached any = object
		switch object := object.(type) {
		case *corev1.ServiceAccount:
			_, informer = in.Accounts()
		case *corev1.Secret:
			if object.Name == informers.KeyRingName {
				_, informer = in.KeyRing()
				break
			}
			_, informer = in.TokenSecrets()
			cached = tokensecrets.Observe(object)
		default:
			continue
		}
		if err := informer.GetIndexer().Update(cached); err != nil {
			t.Fatal(err)
		}
	}
}

// Actions returns the requests since the last call, a line each, without those that describe
// returns "" for.
func (w *World) Actions(t testing.TB, describe func(testing.TB, clienttesting.Action) string) []string {
	t.Helper()
	var lines []string
	for _, action := range w.Client.Actions() {
		if line := describe(t, action); line != "" {
			lines = append(lines, line)
		}
	}
	w.Client.ClearActions()
	return lines
}

// Events returns those recorded since the last call, as "Type Reason".
func (w *World) Events() []string {
	var reasons []string
	for {
		select {
		case event := <-w.Recorded.Events:
			reasons = append(reasons, strings.Join(strings.Fields(event)[:2], " "))
		default:
			return reasons
		}
	}
}

// Series returns the values of a metric that are not zero, by the values of its labels.
func (w *World) Series(t testing.TB, name string) map[string]float64 {
	t.Helper()
	families, err := w.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				if label.GetValue() != "" {
					labels = append(labels, label.GetValue())
				}
			}
			slices.Sort(labels)
			if value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue(); value != 0 {
				values[strings.Join(labels, " ")] = value
			}
		}
	}
	return values
}

// EndQueues ends the queues of a controller when the test ends: they live from New on, until Run
// has returned.
func EndQueues(t testing.TB, run func(context.Context) error) {
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	})
}
