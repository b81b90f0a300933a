// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/stateobject"
)

// serve has a kube-apiserver on each host.
func (a *apiserver) serve(t *testing.T, hosts ...string) {
	t.Helper()
	for _, host := range hosts {
		_, err := a.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), identity("apiserver-"+host, host, time.Now()),
			metav1.CreateOptions{})
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

// leader runs a Registrar on host cp-1, and the HostReporter beside it.
func leader(t *testing.T, a *apiserver) *Registrar {
	t.Helper()
	own := replica(a, "cp-1")
	report(t, own)
	synctest.Wait() // until the Leases are listed
	r := run(t, a, func(c *Config) { c.Hosts = own })
	synctest.Wait()
	return r
}

func replica(a *apiserver, host string) *HostReporter {
	return NewHostReporter(HostReporterConfig{Client: a, Host: host, Endpoint: urlSpec().Endpoint(""), Ready: func() error { return nil }})
}

// report runs a HostReporter until stop is called or the test ends.
func report(t *testing.T, reporter *HostReporter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := reporter.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	return stop
}

// lines are the keys of the hosts object, none if there is no object.
func (a *apiserver) lines(t *testing.T) []string {
	t.Helper()
	object, err := a.CoreV1().ConfigMaps(HostsNamespace).Get(t.Context(), HostsName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(object.Data))
}

// A replica that is not ready is silent, which is the same as none.
func TestAwaitsHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(t, "cp-1", "cp-2", "cp-3")
		r := leader(t, a)
		report(t, replica(a, "cp-2"))
		var ready atomic.Bool
		last := replica(a, "cp-3")
		last.config.Ready = func() error {
			if ready.Load() {
				return nil
			}
			return errors.New("no certificate")
		}
		report(t, last)
		a.renewing(t, 10*time.Minute, "cp-1", "cp-2", "cp-3")
		wantState(t, r, Waiting)
		if err := r.Status().Check(); err == nil || !strings.Contains(err.Error(), AwaitsHosts) ||
			!strings.HasSuffix(err.Error(), "heartbeat from cp-3") {
			t.Errorf("Check = %v, want that there is no heartbeat from cp-3", err)
		}
		a.expect(t, "one host has no ready replica", "probe", "gone")
		if len(a.recorded()) != 1 || !strings.HasPrefix(a.recorded()[0], "WebhookHostWithoutReplica: ") ||
			!strings.HasSuffix(a.recorded()[0], "cp-3") {
			t.Errorf("Events: %q, want one about cp-3", a.recorded())
		}
		ready.Store(true)
		pause(2 * time.Second)
		wantState(t, r, Registered)
		a.expect(t, "all hosts have one", "mutate", "validate")
	})
}

// A replica that is gone does not count once the last one comes, and leaves no line.
func TestHeartbeatsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(t, "cp-1", "cp-2", "cp-3")
		r := leader(t, a)
		stop := report(t, replica(a, "cp-2"))
		pause(time.Minute)
		stop()
		pause(heartbeatTimeout + 2*requeueAfter)
		if diff := cmp.Diff([]string{"host.cp-1", "schema-version"}, a.lines(t)); diff != "" {
			t.Errorf("the line of a replica that is gone stays (-want +got)\n%s", diff)
		}
		report(t, replica(a, "cp-3"))
		pause(time.Minute)
		wantState(t, r, Waiting)
		if err := r.Status().Check(); err == nil || !strings.HasSuffix(err.Error(), "heartbeat from cp-2") {
			t.Errorf("Check = %v, want cp-2 alone", err)
		}
		a.expect(t, "a replica is gone", "probe", "gone")
	})
}

// What needs no other replica binds as fast as ever, and nothing is written for it.
func TestNobodyToAwait(t *testing.T) {
	for name, serve := range map[string]func(*testing.T, *apiserver){
		"no Lease":                 func(*testing.T, *apiserver) {},
		"one host of another name": func(t *testing.T, a *apiserver) { a.serve(t, "kind-control-plane") },
		"two, one of them long ago": func(t *testing.T, a *apiserver) {
			a.serve(t, "cp-2")
			pause(apiservers.IdentityAge + time.Minute)
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
				pause(time.Minute)
				if lines := a.lines(t); lines != nil {
					t.Errorf("heartbeats that nobody needs: %q", lines)
				}
			})
		})
	}
}

// A bound webhook stays and is repaired when a host joins, and an Event names the host. Where the
// webhook is off, kube-apiserver needs no replica, and none is missing.
func TestHostThatJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(t, "cp-1")
		own, registry := replica(a, "cp-1"), metrics.NewKubeRegistry()
		r := run(t, a, func(c *Config) { c.Hosts, c.Metrics = own, NewMetrics(registry.MustRegister) })
		report(t, own)
		pause(time.Second)
		wantState(t, r, Registered)
		a.serve(t, "cp-2")
		pause(missingGrace / 2)
		if len(a.recorded()) > 0 {
			t.Errorf("Events within the grace period: %q", a.recorded())
		}
		pause(missingGrace)
		wantState(t, r, Registered)
		if detail := r.Status().Detail; !strings.Contains(detail, "refuses Pods on cp-2") {
			t.Errorf("the status says %q, want cp-2 in it", detail)
		}
		if len(a.recorded()) != 1 || !strings.Contains(a.recorded()[0], "refuses Pods on cp-2") ||
			!strings.HasSuffix(a.recorded()[0], " --kubeconfig=/etc/kubernetes/admin.conf") {
			t.Errorf("Events: %q, want one about cp-2, whose command also works outside of a Pod", a.recorded())
		}
		if got := value(t, registry); got != 1 {
			t.Errorf("%v hosts without a replica while the webhook is bound, want 1", got)
		}
		a.change(t, validating, func(o *object) *object { return o.with(nil) })
		pause(time.Second)
		a.expect(t, "damaged", "mutate", "validate")

		report(t, replica(a, "cp-2"))
		pause(missingGrace)
		if detail := r.Status().Detail; strings.Contains(detail, "cp-2") {
			t.Errorf("the status still says %q", detail)
		}
		a.serve(t, "cp-3")
		pause(missingGrace / 2)
		a.change(t, mutating, func(o *object) *object { return o.with(nil).annotated(AnnotationOff) })
		pause(missingGrace)
		wantState(t, r, Off)
		if got := value(t, registry); got != 0 || len(a.recorded()) != 1 {
			t.Errorf("%v hosts without a replica while the webhook is off, want 0; Events: %q, want no further one", got, a.recorded())
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

// A hosts object of a newer version is not written: it may say more than this one can read. An
// immutable one prevents heartbeats. In both cases the status says what to do.
func TestUnusableHostsObjectIsReported(t *testing.T) {
	for name, tc := range map[string]struct {
		object corev1.ConfigMap
		want   string
	}{
		"newer":     {corev1.ConfigMap{Data: map[string]string{stateobject.VersionKey: "2", "theirs": "x"}}, `its schema-version is "2"`},
		"immutable": {corev1.ConfigMap{Immutable: new(true)}, "is immutable"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tc.object.Namespace, tc.object.Name = HostsNamespace, HostsName
				a := newAPIServer(t, &tc.object)
				if tc.object.Immutable != nil {
					a.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
						return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), HostsName, nil)
					})
				}
				a.serve(t, "cp-1", "cp-2")
				r := leader(t, a)
				report(t, replica(a, "cp-2"))
				pause(time.Minute)
				wantState(t, r, Waiting)
				if err := r.Status().Check(); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("Check = %v, want %q", err, tc.want)
				}
				if diff := cmp.Diff(slices.Sorted(maps.Keys(tc.object.Data)), a.lines(t)); diff != "" {
					t.Errorf("the object was written (-want +got)\n%s", diff)
				}
			})
		})
	}
}

// What somebody spoils or deletes is right again with the next heartbeats.
func TestHostsObjectIsRepaired(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, a *apiserver){
		"deleted": func(t *testing.T, a *apiserver) {
			if err := a.CoreV1().ConfigMaps(HostsNamespace).Delete(t.Context(), HostsName, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"damaged": func(t *testing.T, a *apiserver) {
			patch := []byte(`{"data":{"schema-version":"none","host.cp-1":"rubbish","host.cp-2":"rubbish"}}`)
			if _, err := a.CoreV1().ConfigMaps(HostsNamespace).Patch(t.Context(), HostsName, types.MergePatchType, patch,
				metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				a.serve(t, "cp-1", "cp-2")
				r := leader(t, a)
				report(t, replica(a, "cp-2"))
				pause(time.Second)
				harm(t, a)
				a.renewing(t, heartbeatInterval+2*time.Second, "cp-1", "cp-2")
				if diff := cmp.Diff([]string{"host.cp-1", "host.cp-2", "schema-version"}, a.lines(t)); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				wantState(t, r, Registered)
				if detail := r.Status().Detail; strings.Contains(detail, "without a replica") {
					t.Errorf("the status says %q", detail)
				}
			})
		})
	}
}

// Each replica writes once in an interval, and nobody else does.
func TestHeartbeatsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(t, "cp-1", "cp-2", "cp-3")
		leader(t, a)
		report(t, replica(a, "cp-2"))
		report(t, replica(a, "cp-3"))
		a.renewing(t, time.Hour, "cp-1", "cp-2", "cp-3")
		writes := 0
		for _, action := range a.Actions() {
			if action.GetResource() == corev1.SchemeGroupVersion.WithResource("configmaps") &&
				(action.GetVerb() == "create" || action.GetVerb() == "patch") {
				writes++
			}
		}
		const want = 3 * int(time.Hour/heartbeatInterval)
		if writes < want-3 || writes > want+6 {
			t.Errorf("%d writes in an hour, want %d", writes, want)
		}
	})
}
