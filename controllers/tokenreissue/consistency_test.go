// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/signing"
)

// TestRingConsistency: a disagreement is told once it has lasted, and once; and so is its end.
func TestRingConsistency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		recorded := clientevents.NewFakeRecorder(10)
		registry := metrics.NewKubeRegistry()
		w := &controllertest.World{Registry: registry, Recorded: recorded}
		keyring := signing.NewKeyring(rotated(t))
		generation := func(n int64) { keyring.Set(ringOf(t, n, newPEM(), oldPEM())) }
		v := informers.New(client, 0)
		a := NewRingConsistency(RingConsistencyConfig{
			Informers: v, Ring: keyring, Recorder: events.NewRecorderTo(recorded, clock.RealClock{}),
			Process: &corev1.ObjectReference{Kind: "Lease", Name: "process"}, Metrics: NewMetrics(registry.MustRegister),
		})
		ctx, cancel := context.WithCancel(t.Context())
		v.Start(ctx)
		v.Await(ctx)
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		check := func(when, status string, mismatch map[string]float64, told ...string) {
			t.Helper()
			synctest.Wait()
			if !strings.Contains(a.Status(), status) {
				t.Errorf("%s: the status is %q, want %q", when, a.Status(), status)
			}
			if diff := cmp.Diff(mismatch, w.Series(t, "sacm_key_ring_mismatch")); diff != "" {
				t.Errorf("%s: mismatch (-want +got):\n%s", when, diff)
			}
			if diff := cmp.Diff(told, w.Events()); diff != "" {
				t.Errorf("%s: events (-want +got):\n%s", when, diff)
			}
		}
		publish := func(number int64) {
			t.Helper()
			ring := keyring.Ring()
			configMap := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: informers.KeyRingName},
				Data:       publishedRing{generation: number, hash: ring.Hash()}.data(ring.ActiveID()),
			}
			configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
			if _, err := configMaps.Update(t.Context(), configMap, metav1.UpdateOptions{}); err != nil {
				if _, err := configMaps.Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}

		check("at the start", "not compared yet", map[string]float64{})
		time.Sleep(settleDelay)
		check("nobody publishes", "is not published", map[string]float64{"unpublished": 1})
		publish(3)
		check("published", "is the one that the leader has published", map[string]float64{})
		publish(4)
		time.Sleep(settleDelay - time.Second)
		check("a moment behind", "is the one that the leader has published", map[string]float64{})
		generation(4)
		a.RingChanged()
		time.Sleep(time.Hour)
		check("not behind any more", "generation 4", map[string]float64{})
		generation(3)
		a.RingChanged()
		time.Sleep(settleDelay + time.Second)
		check("behind", "is not the one", map[string]float64{"behind": 1}, "Warning KeyRingMismatch")
		a.RingChanged()
		time.Sleep(time.Minute)
		check("still behind", "is not the one", map[string]float64{"behind": 1})
		generation(5)
		a.RingChanged()
		time.Sleep(settleDelay + time.Second)
		check("ahead", "is not the one", map[string]float64{"ahead": 1}, "Warning KeyRingMismatch")
		publish(5)
		check("at the end", "is the one", map[string]float64{})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		v.Stop()
	})
}
