// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/testutil"
)

// gauges are the series of the scan.
func gauges(t *testing.T, registry metrics.KubeRegistry) (pods, when float64) {
	t.Helper()
	families, err := registry.Gather()
	testutil.Must(t, err)
	byName := map[string]float64{}
	for _, family := range families {
		byName[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
	}
	return byName["sacm_webhook_missed_pods"], byName["sacm_webhook_missed_scan_timestamp_seconds"]
}

// scanning runs a Scanner in the bubble until the test ends.
func scanning(t *testing.T, w *world) (*Scanner, metrics.KubeRegistry) {
	t.Helper()
	registry := metrics.NewKubeRegistry()
	s := NewScanner(ScannerConfig{
		Finder: w.finder(), Recorder: events.NewRecorderTo(w), Metrics: NewMetrics(registry.MustRegister),
		Process: &corev1.ObjectReference{Kind: "Lease", Name: "us"},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return s, registry
}

func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// scans counts the lists since it was called last.
func (w *world) scans() int {
	n := 0
	for _, request := range w.asked() {
		if request == "list pods" {
			n++
		}
	}
	return n
}

func wantScans(t *testing.T, w *world, when string, want int) {
	t.Helper()
	if got := w.scans(); got != want {
		t.Errorf("%s: %d scans, want %d", when, got, want)
	}
}

func TestScansWhenRegistered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s, _ := scanning(t, w)
		for _, state := range []registration.State{registration.Starting, registration.Proving, registration.Repairing, registration.Off} {
			s.Registration(state)
		}
		pause(24 * time.Hour)
		wantScans(t, w, "before it is registered", 0)

		s.Registration(registration.Registered)
		pause(time.Second)
		s.Registration(registration.Off)
		pause(time.Hour)
		wantScans(t, w, "while it is switched off a second later", 0)

		s.Registration(registration.Registered)
		pause(settleDelay - 1)
		wantScans(t, w, "while kube-apiserver learns of it", 0)
		pause(1)
		wantScans(t, w, "after that", 1)
		pause(24 * time.Hour)
		wantScans(t, w, "in a day in which nothing happens", 0)

		s.Registration(registration.Repairing)
		pause(time.Hour)
		wantScans(t, w, "while it is away", 0)
		s.Registration(registration.Registered)
		pause(settleDelay)
		wantScans(t, w, "when it is back", 1)
	})
}

// Somebody who writes the configuration all the time must not make us list all the time.
func TestScansAreRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s, _ := scanning(t, w)
		for range 3600 {
			s.Registration(registration.Repairing)
			s.Registration(registration.Registered)
			pause(time.Second)
		}
		if got, most := w.scans(), int(time.Hour/interval); got > most || got < most/2 {
			t.Errorf("%d scans in an hour, want at most %d and nearly as many", got, most)
		}
	})
}

func TestScanReports(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		pods   int
		unsure bool
		events int
		tail   string
	}{
		"None":   {},
		"Unsure": {unsure: true},
		"One": {
			pods: 1, events: 2,
			tail: "; sa-controller-manager webhook missed --kubeconfig=/etc/kubernetes/admin.conf lists them with the commands that create " +
				"them again",
		},
		"OneAndUnsure": {pods: 1, unsure: true, events: 2, tail: "; 1 more are uncertain"},
		"Many":         {pods: eventLimit + 1, events: eventLimit + 1, tail: "; the newest 100 have Events of their own"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(accountNamed("shop", "default"), newPod(named("shop", "complete"), of("default"), mounted))
				for i := range tc.pods {
					testutil.Must(t, w.Tracker().Add(newPod(named("shop", fmt.Sprintf("pod-%03d", i)))))
				}
				if tc.unsure {
					_ = w.Tracker().Add(accountNamed("shop", "someone", changed(time.Hour, `{"f:automountServiceAccountToken":{}}`)))
					_ = w.Tracker().Add(newPod(named("shop", "unsure"), of("someone")))
				}
				s, registry := scanning(t, w)
				s.Registration(registration.Registered)
				pause(settleDelay)
				told := w.told()
				if len(told) != tc.events {
					t.Fatalf("%d Events, want %d: %q", len(told), tc.events, told)
				}
				if pods, when := gauges(t, registry); pods != float64(tc.pods) || int64(when) != time.Now().Unix() {
					t.Errorf("the metrics say %v Pods at %v, want %d at %d", pods, when, tc.pods, time.Now().Unix())
				}
				if tc.events == 0 {
					return
				}
				if want := "AdmittedWithoutWebhook Pod/pod-000: The webhook was not called for this Pod, which lacks: account, token. " +
					"Only a new Pod will have it"; told[0] != want {
					t.Errorf("got %q, want %q", told[0], want)
				}
				summary := told[len(told)-1]
				if want := fmt.Sprintf("PodsAdmittedWithoutWebhook Lease/us: Pods that were admitted without the webhook and lack their account or "+
					"token: %d, the first is shop/pod-000;", tc.pods); !strings.HasPrefix(summary, want) || !strings.HasSuffix(summary, tc.tail) {
					t.Errorf("got %q, want %q and at last %q", summary, want, tc.tail)
				}
			})
		})
	}
}

// TestScanReportsTheNewest: those that an earlier scan has found have had their Events.
func TestScanReportsTheNewest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(accountNamed("shop", "default"))
		for i := range eventLimit {
			testutil.Must(t, w.Tracker().Add(newPod(named("shop", fmt.Sprintf("pod-%03d", i)))))
		}
		s, _ := scanning(t, w)
		s.Registration(registration.Registered)
		pause(settleDelay)
		w.told()
		later := newPod(named("shop", "the-last"))
		later.CreationTimestamp = metav1.NewTime(later.CreationTimestamp.Add(time.Second))
		testutil.Must(t, w.Tracker().Add(later))
		s.Registration(registration.Registered)
		pause(interval + settleDelay)
		told := w.told()
		if len(told) != 2 || !strings.HasPrefix(told[0], "AdmittedWithoutWebhook Pod/the-last: ") ||
			!strings.HasPrefix(told[1], "PodsAdmittedWithoutWebhook ") {
			t.Errorf("Events %q, want one of the newest Pod and the summary", told)
		}
	})
}

func TestScanFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(newPod())
		w.breaks(errors.New("boom"))
		s, _ := scanning(t, w)
		s.Registration(registration.Registered)
		pause(settleDelay)
		if told := w.told(); len(told) > 0 {
			t.Errorf("told at once: %q", told)
		}
		pause(time.Hour)
		want := []string{"PodScanFailed Lease/us: Failed to scan for Pods that were admitted without the webhook: list Pods: boom"}
		if told := w.told(); !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		if n := w.scans(); n < 60 || n > 75 {
			t.Errorf("%d tries in an hour, want a dozen and then one a minute", n)
		}
		w.breaks(nil)
		pause(time.Minute + settleDelay)
		wantScans(t, w, "when lists succeed again", 1)
		if told := w.told(); len(told) != 2 {
			t.Errorf("told %q, want a Pod and the summary", told)
		}
		pause(24 * time.Hour)
		wantScans(t, w, "afterwards", 0)
	})
}
