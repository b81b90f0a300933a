// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

func TestLiveHosts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	unrenewed := identity("d", "cp-4", now)
	unrenewed.Spec.RenewTime = nil
	for name, tc := range map[string]struct {
		reason string
		leases []*coordinationv1.Lease
		want   []string
	}{
		"None": {},
		"Two":  {leases: []*coordinationv1.Lease{identity("b", "cp-2", now), identity("a", "cp-1", now.Add(-10*time.Second))}, want: []string{"cp-1", "cp-2"}},
		"SameHost": {
			reason: "one replica is enough for both",
			leases: []*coordinationv1.Lease{identity("a", "cp-1", now), identity("b", "cp-1", now)}, want: []string{"cp-1"},
		},
		"Old":       {leases: []*coordinationv1.Lease{identity("a", "cp-1", now), identity("b", "cp-2", now.Add(-identityAge-time.Second))}, want: []string{"cp-1"}},
		"NotYet":    {leases: []*coordinationv1.Lease{identity("a", "cp-1", now), identity("b", "cp-2", now.Add(-identityAge))}, want: []string{"cp-1", "cp-2"}},
		"Unnamed":   {reason: "safer than to overlook it", leases: []*coordinationv1.Lease{identity("a", "", now)}, want: []string{"a"}},
		"NoRenewal": {reason: "safer than to overlook it", leases: []*coordinationv1.Lease{unrenewed}, want: []string{"cp-4"}},
		"OurClockIsFast": {
			reason: "all Leases look old to us",
			leases: []*coordinationv1.Lease{identity("a", "cp-1", now.Add(-time.Hour)), identity("b", "cp-2", now.Add(-time.Hour))},
			want:   []string{"cp-1", "cp-2"},
		},
		"OneClockIsFast": {
			reason: "it must not make the others look old",
			leases: []*coordinationv1.Lease{identity("a", "cp-1", now.Add(time.Hour)), identity("b", "cp-2", now)},
			want:   []string{"cp-1", "cp-2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, liveHosts(tc.leases, now)); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPerHost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec Spec
		want bool
	}{
		"Loopback":  {Spec{Mode: URL, Host: "127.0.0.1"}, true},
		"Loopback6": {Spec{Mode: URL, Host: "::1"}, true},
		"Localhost": {Spec{Mode: URL, Host: "localhost"}, true},
		"Address":   {Spec{Mode: URL, Host: "10.0.0.7"}, false},
		"Name":      {Spec{Mode: URL, Host: "webhook.example.org"}, false},
		"Service":   {Spec{Mode: Service, Host: "127.0.0.1"}, false},
		"NotAtAll":  {Spec{Mode: None, Host: "127.0.0.1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.spec.PerHost(); got != tc.want {
				t.Errorf("%t, want %t", got, tc.want)
			}
		})
	}
}

func TestHold(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	two := roll{applies: true, synced: true, hosts: []string{"cp-1", "cp-2"}, self: "cp-1", round: "r", called: now}
	with := func(change func(*roll)) roll {
		r := two
		change(&r)
		return r
	}
	answered := rollCall{round: "r", answers: map[string]string{"cp-2": "r"}}
	type outcome struct {
		Held, Call bool
		Names      string
	}
	for name, tc := range map[string]struct {
		reason string
		roll   roll
		want   outcome
	}{
		"DoesNotApply": {reason: "Service, another host, or the flag"},
		"NotListed":    {reason: "hosts may be there", roll: with(func(r *roll) { r.synced = false }), want: outcome{Held: true}},
		"NoLeases":     {reason: "then there is nothing to go by", roll: with(func(r *roll) { r.hosts = nil })},
		"OneHost":      {reason: "its kube-apiserver has proved it", roll: with(func(r *roll) { r.hosts = []string{"other-name"} })},
		"NotAsked":     {roll: with(func(r *roll) { r.round = "" }), want: outcome{Held: true, Call: true, Names: "cp-2"}},
		"NoAnswer":     {roll: two, want: outcome{Held: true, Names: "cp-2"}},
		"Answered":     {roll: with(func(r *roll) { r.call = answered })},
		"AnsweredLongAgo": {
			reason: "the replica may be gone",
			roll:   with(func(r *roll) { r.call, r.called = answered, now.Add(-roundAge-time.Second) }),
			want:   outcome{Held: true, Call: true},
		},
		"OldAnswer": {
			reason: "to a former question",
			roll:   with(func(r *roll) { r.call = rollCall{round: "r", answers: map[string]string{"cp-2": "q"}} }),
			want:   outcome{Held: true, Names: "cp-2"},
		},
		"OthersQuestion": {
			reason: "the answer is to a question that this leader has not asked",
			roll:   with(func(r *roll) { r.call = rollCall{round: "s", answers: map[string]string{"cp-2": "s"}} }),
			want:   outcome{Held: true, Names: "cp-2"},
		},
		"Foreign": {
			reason: "nothing is written over what a newer version has written",
			roll:   with(func(r *roll) { r.round, r.call = "", rollCall{foreign: "2"} }),
			want:   outcome{Held: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, held := tc.roll.hold(now)
			got := outcome{Held: held, Call: d.call}
			if _, names, found := strings.Cut(d.status.Detail, "answered on "); found {
				got.Names = names
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
			if held && (d.status.State != Waiting || d.status.Detail == "" || d.after == 0) {
				t.Errorf("held with %+v, want a reason and another look", d)
			}
		})
	}
}
