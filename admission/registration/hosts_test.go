// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// identity is the Lease of a kube-apiserver on host.
func identity(name, host string, renewed time.Time) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: name,
			Labels: map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver"},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(renewed))},
	}
	if host != "" {
		lease.Labels[corev1.LabelHostname] = host
	}
	return lease
}

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

func TestLook(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const ours, other = `{"endpoint":"https://127.0.0.1:10262","counter":2}`, `{"endpoint":"https://127.0.0.1:10263","counter":2}`
	const before = `{"endpoint":"https://127.0.0.1:10262","counter":1}`
	type lines = map[string]string
	two := []string{"cp-1", "cp-2"}
	for name, tc := range map[string]struct {
		reason      string
		hosts       []string
		first, next lines // of cp-2, at the first look and at the next one
		after       time.Duration
		want        hostCheck
	}{
		"OneHost": {reason: "its kube-apiserver has proved it", hosts: []string{"other-name"}},
		"NoLine":  {hosts: two, want: hostCheck{missing: []string{"cp-2"}}},
		"Came":    {hosts: two, next: lines{"cp-2": ours}},
		"Moved":   {hosts: two, first: lines{"cp-2": before}, next: lines{"cp-2": ours}},
		"NeverMoved": {
			reason: "nobody knows its age", hosts: two, first: lines{"cp-2": ours}, next: lines{"cp-2": ours},
			want: hostCheck{missing: []string{"cp-2"}},
		},
		"Elsewhere": {
			reason: "kube-apiserver does not reach it", hosts: two, next: lines{"cp-2": other}, want: hostCheck{missing: []string{"cp-2"}},
		},
		"Rubbish": {hosts: two, next: lines{"cp-2": "rubbish"}, want: hostCheck{missing: []string{"cp-2"}}},
		"Stale": {
			reason: "its replica is gone", hosts: two, first: lines{"cp-2": ours}, next: lines{"cp-2": ours}, after: heartbeatTimeout + time.Second,
			want: hostCheck{missing: []string{"cp-2"}, shown: []string{"cp-2"}, stale: []string{"cp-2"}},
		},
		"HostThatIsGone": {
			reason: "it is removed, and not missed", hosts: []string{"cp-1", "cp-3"}, first: lines{"cp-2": ours, "cp-3": before}, next: lines{
				"cp-2": ours, "cp-3": ours,
			},
			after: heartbeatTimeout + time.Second, want: hostCheck{stale: []string{"cp-2"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &hostChecker{}
			counts := func(l line) bool { return l.Endpoint == "https://127.0.0.1:10262" }
			c.look(tc.hosts, "cp-1", counts, tc.first, now)
			got := c.look(tc.hosts, "cp-1", counts, tc.next, now.Add(tc.after))
			tc.want.applies = true
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(hostCheck{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

func TestHold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		check  hostCheck
		want   string // what it waits for
	}{
		"DoesNotApply": {reason: "Service, another host, or the flag"},
		"Unknown":      {reason: "hosts may be there", check: hostCheck{applies: true, unknown: errors.New("not listed")}, want: "not listed"},
		"Missing": {
			check: hostCheck{applies: true, missing: []string{"cp-2", "cp-3"}}, want: AwaitsHosts + "; no heartbeat from cp-2, cp-3",
		},
		"AllThere": {check: hostCheck{applies: true}},
	} {
		t.Run(name, func(t *testing.T) {
			d, held := tc.check.hold()
			if d.status.Detail != tc.want || held != (tc.want != "") {
				t.Errorf("%s: held %t for %q, want %q", tc.reason, held, d.status.Detail, tc.want)
			}
			if held && (d.status.State != Waiting || d.after == 0) {
				t.Errorf("held with %+v, want another look", d)
			}
		})
	}
}
