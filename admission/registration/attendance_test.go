// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
)

// serve has a kube-apiserver on each host.
func (a *apiserver) serve(t *testing.T, hosts ...string) {
	t.Helper()
	for _, host := range hosts {
		_, err := a.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), identity("apiserver-"+host, host, time.Now()), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// renewing lets time pass in which the kube-apiservers on these hosts renew their Leases.
func (a *apiserver) renewing(t *testing.T, d time.Duration, hosts ...string) {
	t.Helper()
	leases := a.CoordinationV1().Leases(metav1.NamespaceSystem)
	for end := time.Now().Add(d); time.Now().Before(end); pause(10 * time.Second) {
		for _, host := range hosts {
			if _, err := leases.Update(t.Context(), identity("apiserver-"+host, host, time.Now()), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// leader runs a Registrar on host cp-1, and the Attendance beside it.
func leader(t *testing.T, a *apiserver) *Registrar {
	t.Helper()
	own := replica(a, "cp-1")
	r := run(t, a, func(c *Config) { c.Attendance = own })
	attend(t, own)
	synctest.Wait()
	return r
}

func replica(a *apiserver, host string) *Attendance {
	return NewAttendance(AttendanceConfig{Client: a, Host: host, Spec: urlSpec(), Ready: func() error { return nil }})
}

// attend runs an Attendance until stop is called or the test ends.
func attend(t *testing.T, attendance *Attendance) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := attendance.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	return stop
}

func TestAwaitsHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(t, "cp-1", "cp-2", "cp-3")
		r := leader(t, a)
		attend(t, replica(a, "cp-2"))
		a.renewing(t, 10*time.Minute, "cp-1", "cp-2", "cp-3")
		wantState(t, r, Waiting)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), AwaitsHosts) || !strings.HasSuffix(err.Error(), "answered on cp-3") {
			t.Errorf("Check = %v, want that nothing has answered on cp-3", err)
		}
		a.expect(t, "one host has no replica", "probe", "gone")
		if len(a.told()) != 1 || !strings.HasPrefix(a.told()[0], "WebhookHostWithoutReplica: ") || !strings.HasSuffix(a.told()[0], "cp-3") {
			t.Errorf("Events: %q, want one about cp-3", a.told())
		}
		attend(t, replica(a, "cp-3"))
		pause(2 * time.Second)
		wantState(t, r, Registered)
		a.expect(t, "all hosts have one", "mutate", "validate")
	})
}

// A replica that has answered and is gone does not count once the last one comes.
func TestAnswersAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(t, "cp-1", "cp-2", "cp-3")
		r := leader(t, a)
		stop := attend(t, replica(a, "cp-2"))
		pause(roundAge / 2)
		stop()
		pause(roundAge)
		attend(t, replica(a, "cp-3"))
		pause(roundAge)
		wantState(t, r, Waiting)
		if err := r.Check(); err == nil || !strings.HasSuffix(err.Error(), "answered on cp-2") {
			t.Errorf("Check = %v, want cp-2 alone", err)
		}
		a.expect(t, "a replica is gone", "probe", "gone")
	})
}

func TestUnreadyReplicaIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(t, "cp-1", "cp-2")
		r := leader(t, a)
		var ready atomic.Bool
		other := replica(a, "cp-2")
		other.config.Ready = func() error {
			if ready.Load() {
				return nil
			}
			return errors.New("no certificate")
		}
		attend(t, other)
		pause(10 * time.Second)
		wantState(t, r, Waiting)
		ready.Store(true)
		pause(2 * time.Second)
		wantState(t, r, Registered)
	})
}

// One that listens elsewhere is none: kube-apiserver beside it would not reach it.
func TestOtherEndpointIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(t, "cp-1", "cp-2")
		r := leader(t, a)
		other := replica(a, "cp-2")
		other.config.Spec.Port++
		attend(t, other)
		pause(time.Minute)
		wantState(t, r, Waiting)
	})
}

// What needs no other replica binds as fast as ever, and asks nobody.
func TestNobodyToAwait(t *testing.T) {
	for name, serve := range map[string]func(*testing.T, *apiserver){
		"no Lease":                 func(*testing.T, *apiserver) {},
		"one host of another name": func(t *testing.T, a *apiserver) { a.serve(t, "kind-control-plane") },
		"two, one of them long ago": func(t *testing.T, a *apiserver) {
			a.serve(t, "cp-2")
			pause(identityAge + time.Minute)
			a.serve(t, "cp-1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				serve(t, a)
				r := leader(t, a)
				pause(300 * time.Millisecond)
				wantState(t, r, Registered)
				if _, err := a.CoreV1().ConfigMaps(RollCallNamespace).Get(t.Context(), RollCallName, metav1.GetOptions{}); err == nil {
					t.Error("somebody was asked for")
				}
			})
		})
	}
}

// What is bound stays bound whoever comes, is repaired, and the newcomer is told of.
func TestHostThatJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(t, "cp-1")
		r := leader(t, a)
		pause(time.Second)
		wantState(t, r, Registered)
		a.serve(t, "cp-2")
		pause(missingGrace / 2)
		if len(a.told()) > 0 {
			t.Errorf("Events within the grace: %q", a.told())
		}
		pause(missingGrace)
		wantState(t, r, Registered)
		if detail := r.Status().Detail; !strings.Contains(detail, "refuses Pods on cp-2") {
			t.Errorf("the status says %q, want cp-2 in it", detail)
		}
		if len(a.told()) != 1 || !strings.Contains(a.told()[0], "refuses Pods on cp-2") ||
			!strings.HasSuffix(a.told()[0], " --kubeconfig=/etc/kubernetes/admin.conf") {
			t.Errorf("Events: %q, want one about cp-2, whose command also works outside of a Pod", a.told())
		}
		a.change(t, validating, func(o *object) *object { return o.with(nil) })
		pause(time.Second)
		a.expect(t, "damaged", "mutate", "validate")

		attend(t, replica(a, "cp-2"))
		pause(missingGrace)
		if detail := r.Status().Detail; strings.Contains(detail, "cp-2") {
			t.Errorf("the status still says %q", detail)
		}
	})
}

// Where the webhook is out, kube-apiserver needs nobody, and nobody is missing.
func TestNobodyIsMissedWhileOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(t, "cp-1")
		own := replica(a, "cp-1")
		registry := metrics.NewKubeRegistry()
		shown := NewMetrics(registry.MustRegister)
		r := run(t, a, func(c *Config) { c.Attendance, c.Metrics = own, shown })
		attend(t, own)
		pause(time.Second)
		a.serve(t, "cp-2")
		pause(missingGrace / 2)
		if got := value(t, registry); got != 1 {
			t.Fatalf("%v hosts without a replica while the webhook is bound, want 1", got)
		}
		a.change(t, mutating, func(o *object) *object { return o.with(nil).annotated(AnnotationOff) })
		pause(missingGrace)
		wantState(t, r, Off)
		if got := value(t, registry); got != 0 {
			t.Errorf("%v hosts without a replica while the webhook is out, want 0", got)
		}
		if len(a.told()) > 0 {
			t.Errorf("Events while the webhook is out: %q", a.told())
		}
	})
}

// value is what the only gauge shows.
func value(t *testing.T, registry metrics.Gatherer) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetGauge().GetValue()
}

// A newer version may have more to say than this one can read.
func TestForeignRollCallStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := asks(nil, "theirs", "https://127.0.0.1:10262")
		foreign.Data[keySchema] = "2"
		a := newAPIServer(t, foreign)
		a.serve(t, "cp-1", "cp-2")
		r := leader(t, a)
		attend(t, replica(a, "cp-2"))
		pause(time.Minute)
		wantState(t, r, Waiting)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), "schema-version 2") {
			t.Errorf("Check = %v, want the schema-version", err)
		}
		found, err := a.CoreV1().ConfigMaps(RollCallNamespace).Get(t.Context(), RollCallName, metav1.GetOptions{})
		if err != nil || found.Data[keyRound] != "theirs" || len(found.Data) != len(foreign.Data) {
			t.Errorf("the ConfigMap was written: %v, %v", found, err)
		}
	})
}

// A question costs one write, and so does an answer; nobody writes after that.
func TestRollCallIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(t, "cp-1", "cp-2", "cp-3")
		leader(t, a)
		attend(t, replica(a, "cp-2"))
		attend(t, replica(a, "cp-3"))
		a.renewing(t, time.Hour, "cp-1", "cp-2", "cp-3")
		writes := 0
		for _, action := range a.Actions() {
			if action.GetResource() == corev1.SchemeGroupVersion.WithResource("configmaps") && (action.GetVerb() == "create" || action.GetVerb() == "update") {
				writes++
			}
		}
		// The fake takes what a real one refuses for its resourceVersion, so an answer may
		// be lost and given again.
		if writes < 4 || writes > 8 {
			t.Errorf("%d writes in an hour, want 4", writes)
		}
	})
}
