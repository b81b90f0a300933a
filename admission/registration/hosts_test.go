// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"cmp"
	"errors"
	"fmt"
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
		testutil.Check(t, "by URL to "+host, want, Spec{Mode: URL, Host: host}.PerHost())
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
	joins := func(t *testing.T, a *apiserver) { a.lives(t, "b", "cp-2") }
	fails := func(_ *testing.T, a *apiserver) { a.noLeases.Store(true) }
	leaves := func(t *testing.T, a *apiserver) {
		testutil.Must(t, a.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(t.Context(), "b", metav1.DeleteOptions{}))
	}
	for name, tc := range map[string]struct {
		hosts string // of the identity Leases a and b
		url   string // its host, loopback if empty
		first State  // before what comes after
		after func(*testing.T, *apiserver)
		state State
		fails string // what Check says at the end; ready if empty
		shown int
	}{
		"OneHostTwoServers": {hosts: "cp-1 cp-1", state: Registered, shown: 1},
		"TwoHosts":          {hosts: "cp-1 cp-2", state: Waiting, fails: severalHosts + "cp-1, cp-2", shown: 2},
		"TwoHostsByAName":   {hosts: "cp-1 cp-2", url: "webhook.example.org", state: Registered},
		"JoinsLater": {
			hosts: "cp-1", first: Registered, after: joins, state: Registered, fails: severalHosts + "cp-1, cp-2", shown: 2,
		},
		"Leaves":       {hosts: "cp-1 cp-2", first: Waiting, after: leaves, state: Registered, shown: 1},
		"Unknown":      {state: Waiting, fails: "leases is forbidden"},
		"UnknownLater": {hosts: "cp-1", first: Registered, after: fails, state: Registered},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				a.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
					return a.noLeases.Load(), nil, errors.New("leases is forbidden")
				})
				for i, host := range strings.Fields(tc.hosts) {
					a.lives(t, string(rune('a'+i)), host)
				}
				a.noLeases.Store(tc.hosts == "")
				registry := metrics.NewKubeRegistry()
				r := run(t, a, func(c *Config) {
					c.Metrics = NewMetrics(registry.MustRegister)
					c.Host = cmp.Or(tc.url, c.Host)
				})
				pause(time.Minute)
				if tc.after != nil {
					wantState(t, r, tc.first)
					tc.after(t, a)
					pause(hostsInterval + time.Second)
				}
				wantState(t, r, tc.state)
				testutil.CheckError(t, "Check", tc.fails, r.Status().Check())
				if tc.state == Waiting {
					a.expect(t, "waiting", "gone", "gone")
				}
				shown := []string{fmt.Sprintf("sacm_webhook_url_hosts %d", tc.shown)}
				testutil.Check(t, "the metric", shown, testutil.Series(registry, "sacm_webhook_url_hosts"))
			})
		})
	}
}
