// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"
)

// shownState is the state that the metric shows; it wants exactly one.
func shownState(t *testing.T, registry metrics.Gatherer) (shown State) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "sacm_webhook_registration_state" {
			continue
		}
		for _, one := range family.GetMetric() {
			if one.GetGauge().GetValue() == 0 {
				continue
			}
			if shown != "" {
				t.Errorf("two states at once: %s and %s", shown, one.GetLabel()[0].GetValue())
			}
			shown = State(one.GetLabel()[0].GetValue())
		}
	}
	return shown
}

// TestStateIsShown: nobody is unprotected in silence. The metric of the leader shows that the
// webhook is off, and every replica says so.
func TestStateIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		registry := metrics.NewKubeRegistry()
		shown := NewMetrics(registry.MustRegister)
		r := run(t, a, func(c *Config) { c.Metrics = shown })
		others := metrics.NewKubeRegistry()
		config := a.config()
		config.ServingCA, config.Metrics = &servingCA{}, NewMetrics(others.MustRegister)
		other := New(config)
		defer start(t, other.Run)()
		for _, step := range []struct {
			do    func()
			want  State
			other string // what a replica that does not lead says
		}{
			{do: func() {}, want: Registered, other: "kube-apiserver calls the webhook"},
			{do: func() {
				a.change(t, validating, func(o *object) *object { return o.annotated(AnnotationOff) })
			}, want: Off, other: "off: annotation"},
			{do: func() {
				a.change(t, validating, func(o *object) *object { return o.annotated("") })
			}, want: Registered, other: "kube-apiserver calls the webhook"},
			{do: func() {
				for range 2 {
					a.remove(t, mutating)
					pause(time.Minute)
				}
			}, want: Deleted},
		} {
			step.do()
			pause(time.Second)
			wantState(t, r, step.want)
			if got := shownState(t, registry); got != step.want {
				t.Errorf("the metric shows %q, want %q", got, step.want)
			}
			if got := other.Status(); got.State != Idle || !strings.Contains(got.Detail, step.other) {
				t.Errorf("a replica that does not lead says %q, want %q in it", got, step.other)
			}
			if got := shownState(t, others); got != Idle {
				t.Errorf("the metric of a replica that does not lead shows %q", got)
			}
		}
	})
}

// TestFollowerKnowsWhatIsRegistered: each replica has its own serving certificate, and must
// know by itself what kube-apiserver verifies it with. It writes nothing.
func TestFollowerKnowsWhatIsRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		config, ca := a.config(), &servingCA{bundle: []byte("of the follower")}
		config.ServingCA = ca
		follower := New(config)
		defer start(t, follower.Run)()
		pause(time.Minute)
		if _, writes := a.counts(); writes != 0 || len(ca.has()) != 0 {
			t.Fatalf("a replica that does not lead has written %d times and knows %q", writes, ca.has())
		}
		run(t, a)
		pause(time.Minute)
		if got := ca.has(); len(got) != 1 || got[0] != string(a.accepted) || !ca.inherited {
			t.Errorf("registered is %q, inherited %t; want what the leader has written", got, ca.inherited)
		}
		end := start(t, follower.Lead)
		pause(time.Second)
		if ca.inherited {
			t.Error("what a leader has seen once is still taken for that of another one")
		}
		end()
		pause(time.Second)
		if !ca.inherited {
			t.Error("a replica that no longer leads takes what is written for its own")
		}
	})
}
