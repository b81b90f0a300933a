// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/testutil"
)

func TestPerHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{"127.0.0.1": true, "::1": true, "localhost": true, "10.0.0.7": false,
		"webhook.example.org": false} {
		if got := (Spec{Mode: URL, Host: host}).PerHost(); got != want {
			t.Errorf("by URL to %s: %t, want %t", host, got, want)
		}
	}
	for _, mode := range []Mode{Service, None} {
		if (Spec{Mode: mode, Host: "127.0.0.1"}).PerHost() {
			t.Errorf("with registration %q each host needs a replica", mode)
		}
	}
}

// lives has a kube-apiserver renew its identity Lease once, now.
func (a *apiserver) lives(t *testing.T, name, host string) {
	t.Helper()
	testutil.Must(t, a.Tracker().Add(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: name,
			Labels: map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver", corev1.LabelHostname: host},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(time.Now()))},
	}))
}

// TestURLOnSeveralHosts: a loopback URL does not bind while a second host has a live identity Lease, and
// fails readiness once it is bound.
func TestURLOnSeveralHosts(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*testing.T, *apiserver)
		host   string // of the URL, loopback if empty
		after  func(*testing.T, *apiserver)
		state  State
		fails  string // what Check says at the end; ready if empty
		hosts  float64
	}{
		"OneHostTwoServers": {
			before: func(t *testing.T, a *apiserver) { a.lives(t, "a", "cp-1"); a.lives(t, "b", "cp-1") }, state: Registered, hosts: 1,
		},
		"TwoHosts": {
			before: func(t *testing.T, a *apiserver) { a.lives(t, "a", "cp-1"); a.lives(t, "b", "cp-2") },
			state:  Waiting, fails: severalHosts + "cp-1, cp-2", hosts: 2,
		},
		"TwoHostsByAName": {
			before: func(t *testing.T, a *apiserver) { a.lives(t, "a", "cp-1"); a.lives(t, "b", "cp-2") },
			host:   "webhook.example.org", state: Registered,
		},
		"JoinsLater": {
			before: func(t *testing.T, a *apiserver) { a.lives(t, "a", "cp-1") },
			after:  func(t *testing.T, a *apiserver) { a.lives(t, "b", "cp-2") },
			state:  Registered, fails: severalHosts + "cp-1, cp-2", hosts: 2,
		},
		"Unknown": {
			before: func(_ *testing.T, a *apiserver) { a.noLeases.Store(true) }, state: Waiting, fails: "leases is forbidden",
		},
		"UnknownLater": {
			before: func(t *testing.T, a *apiserver) { a.lives(t, "a", "cp-1") },
			after:  func(_ *testing.T, a *apiserver) { a.noLeases.Store(true) }, state: Registered,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				a.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
					return a.noLeases.Load(), nil, errors.New("leases is forbidden")
				})
				tc.before(t, a)
				registry := metrics.NewKubeRegistry()
				r := run(t, a, func(c *Config) {
					c.Metrics = NewMetrics(registry.MustRegister)
					if tc.host != "" {
						c.Host = tc.host
					}
				})
				pause(time.Minute)
				if tc.after != nil {
					wantState(t, r, Registered)
					tc.after(t, a)
					pause(hostsInterval)
				}
				wantState(t, r, tc.state)
				err := r.Status().Check()
				if (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("Check = %v, want %q", err, tc.fails)
				}
				if tc.state == Waiting {
					a.expect(t, "waiting", "gone", "gone")
				}
				families, err := registry.Gather()
				testutil.Must(t, err)
				for _, family := range families {
					if got := family.GetMetric()[0].GetGauge().GetValue(); family.GetName() == "sacm_webhook_url_hosts" && got != tc.hosts {
						t.Errorf("the metric has %v hosts, want %v", got, tc.hosts)
					}
				}
			})
		})
	}
}

// TestBindsOnceTheOtherHostIsGone: nobody has to restart anything.
func TestBindsOnceTheOtherHostIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.lives(t, "a", "cp-1")
		a.lives(t, "b", "cp-2")
		r := run(t, a)
		pause(time.Minute)
		wantState(t, r, Waiting)
		testutil.Must(t, a.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(t.Context(), "b", metav1.DeleteOptions{}))
		pause(hostsInterval + time.Second)
		wantState(t, r, Registered)
	})
}
