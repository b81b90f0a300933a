// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllertest has what the tests of several controllers share: a World in front of a
// fake API server, objects with readable changes, and the requests, Events and series of a
// controller. Only tests may import it.
package controllertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/testutil"
)

// World surrounds a controller: a fake API server with the live objects, and caches. They hold what
// a test puts there, or what informers show once Start has been called.
type World struct {
	Client    *fake.Clientset
	Clock     *clocktesting.FakeClock
	Recorded  testutil.EventLog
	Registry  metrics.KubeRegistry
	Informers *informers.Informers

	version atomic.Int64
	read    int // Events by the last call of Events
	started bool
}

// NewWorld begins at now, with empty caches. If now is zero, there is no Clock, as in a synctest
// bubble.
func NewWorld(now time.Time, live ...runtime.Object) *World {
	w := &World{Client: fake.NewClientset(live...), Registry: metrics.NewKubeRegistry()}
	if !now.IsZero() {
		w.Clock = clocktesting.NewFakeClock(now)
	}
	w.Informers = informers.New(w.Client, 0)
	w.Client.PrependReactor("patch", "*", w.answerPatch)
	return w
}

// answerPatch does what the fake API server does, and answers with another version. Only with informers the version is kept, and a patch of
// another one refused: other tests name versions.
func (w *World) answerPatch(action clienttesting.Action) (bool, runtime.Object, error) {
	tracker, patch := w.Client.Tracker(), action.(clienttesting.PatchActionImpl)
	if present, err := tracker.Get(patch.Resource, patch.Namespace, patch.Name); err == nil && w.started {
		version := fmt.Sprintf(`"resourceVersion":%q`, present.(metav1.Object).GetResourceVersion())
		if !strings.Contains(string(patch.Patch), version) {
			return true, nil, Conflict(patch.Resource.Resource)
		}
	}
	_, object, err := clienttesting.ObjectReaction(tracker)(action)
	if err != nil {
		return true, object, err
	}
	object = object.DeepCopyObject()
	w.Number(object.(metav1.Object))
	if w.started {
		err = tracker.Update(patch.Resource, object.DeepCopyObject(), patch.Namespace)
	}
	return true, object, err
}

// Recorder records into the world.
func (w *World) Recorder() *events.Recorder { return events.NewRecorderTo(&w.Recorded) }

// Start runs a controller on informers until the test ends or stop is called. It needs a synctest
// bubble.
func (w *World) Start(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	w.started = true
	watching, unwatch := context.WithCancel(t.Context())
	w.Informers.Start(watching)
	w.Informers.Await(watching)
	synctest.Wait() // the fake API server loses what changes between a list and its watch
	t.Cleanup(func() { unwatch(); w.Informers.Stop() })
	return testutil.Start(t, run)
}

// Cache puts objects into the caches as the informers would, and skips those that no controller
// watches.
func (w *World) Cache(t testing.TB, objects ...runtime.Object) {
	t.Helper()
	for _, object := range objects {
		if indexer, cached := w.indexer(object); indexer != nil {
			testutil.Must(t, indexer.Update(cached))
		}
	}
}

// Uncache takes objects out of the caches.
func (w *World) Uncache(t testing.TB, objects ...runtime.Object) {
	t.Helper()
	for _, object := range objects {
		indexer, cached := w.indexer(object)
		testutil.Must(t, indexer.Delete(cached))
	}
}

func (w *World) indexer(object runtime.Object) (indexer cache.Indexer, cached any) {
	var informer cache.SharedIndexInformer
	cached = object
	switch object := object.(type) {
	case *corev1.Namespace:
		_, informer = w.Informers.Namespaces()
	case *corev1.ServiceAccount:
		_, informer = w.Informers.Accounts()
	case *corev1.Secret:
		_, informer = w.Informers.TokenSecrets()
		cached = tokensecrets.Observe(object)
	default:
		return nil, nil
	}
	return informer.GetIndexer(), cached
}

// Live puts objects into the API server, in place of those of the same names.
func (w *World) Live(t testing.TB, objects ...runtime.Object) {
	t.Helper()
	for _, object := range objects {
		resource, namespace, _ := locate(t, object)
		if w.Client.Tracker().Update(resource, object, namespace) != nil {
			testutil.Must(t, w.Client.Tracker().Add(object))
		}
	}
}

// Delete takes objects out of the API server.
func (w *World) Delete(t testing.TB, objects ...runtime.Object) {
	t.Helper()
	for _, object := range objects {
		resource, namespace, name := locate(t, object)
		testutil.Must(t, w.Client.Tracker().Delete(resource, namespace, name))
	}
}

// NumberVersions gives each version of a resource that is written a number, and refuses an update of another version
// than the present one, which the fake API server does not.
func (w *World) NumberVersions(resource string) {
	w.Client.PrependReactor("*", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		written, ok := action.(interface{ GetObject() runtime.Object })
		if !ok {
			return false, nil, nil
		}
		object := written.GetObject().(metav1.Object)
		if action.GetVerb() == "update" {
			present, err := w.Client.Tracker().Get(action.GetResource(), action.GetNamespace(), object.GetName())
			if err != nil || present.(metav1.Object).GetResourceVersion() != object.GetResourceVersion() {
				return true, nil, cmp.Or(err, error(Conflict(resource)))
			}
		}
		w.Number(object)
		return false, nil, nil
	})
}

// Number does the same with a version that another client writes.
func (w *World) Number(object metav1.Object) {
	object.SetResourceVersion(fmt.Sprint(100 + w.version.Add(1)))
}

// LiveSecret is the Secret as the API server has it.
func (w *World) LiveSecret(t testing.TB, namespace, name string) *corev1.Secret {
	t.Helper()
	object := testutil.Get(w.Client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("secrets"), namespace, name))(t)
	return object.(*corev1.Secret)
}

// Fail answers all such requests with err.
func (w *World) Fail(verb, resource string, err error) {
	w.Client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// FailNext answers the next such requests with one of errs each; nil lets one through.
func (w *World) FailNext(verb, resource string, errs ...error) {
	w.Client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		if len(errs) == 0 {
			return false, nil, nil
		}
		err := errs[0]
		errs = errs[1:]
		return err != nil, nil, err
	})
}

// Events returns those recorded since the last call, as "Type Reason".
func (w *World) Events() []string {
	var reasons []string
	lines := w.Recorded.Lines()
	for _, line := range lines[w.read:] {
		reasons = append(reasons, strings.Split(line, ": ")[1])
	}
	w.read = len(lines)
	return reasons
}

// Series returns the values of a metric that are not zero, by the values of its labels.
func (w *World) Series(t testing.TB, name string) map[string]float64 {
	t.Helper()
	families := testutil.Get(w.Registry.Gather())(t)
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
		err := run(ctx)
		testutil.Expect(t, err == nil, "%v", err)
	})
}
