// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/testutil"
)

// shown are the states that the metric shows.
func shown(registry metrics.KubeRegistry) []string {
	return slices.DeleteFunc(testutil.Series(registry, "sacm_webhook_registration_state"),
		func(line string) bool { return strings.HasSuffix(line, " 0") })
}

// series is what it shows in a state.
func series(state State) []string {
	return []string{fmt.Sprintf("sacm_webhook_registration_state{state=%q} 1", state)}
}

// TestStateIsShown: nobody is unprotected in silence. The metric of the leader shows that the
// webhook is off, and every replica says so.
func TestStateIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		registry := metrics.NewKubeRegistry()
		r := run(t, a, func(c *Config) { c.Metrics = NewMetrics(registry.MustRegister) })
		others := metrics.NewKubeRegistry()
		config := a.config()
		config.ServingCA, config.Metrics = &servingCA{}, NewMetrics(others.MustRegister)
		other := New(config)
		testutil.Start(t, other.Run)
		for _, step := range []struct {
			do    func()
			want  State
			other string // what a replica that does not lead says
		}{
			{do: func() {}, want: Registered, other: "the webhook is bound"},
			{do: func() {
				a.change(t, validating, func(o *object) *object { return o.annotated(AnnotationOff) })
			}, want: Off, other: "off: annotation"},
			{do: func() {
				a.change(t, validating, func(o *object) *object { return o.annotated("") })
			}, want: Registered, other: "the webhook is bound"},
		} {
			step.do()
			pause(time.Second)
			wantState(t, r, step.want)
			testutil.Check(t, "the metric", series(step.want), shown(registry))
			if got := other.Status(); got.State != Idle || !strings.Contains(got.Detail, step.other) {
				t.Errorf("a replica that does not lead says %q, want %q in it", got, step.other)
			}
			testutil.Check(t, "the metric of a replica that does not lead", series(Idle), shown(others))
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
		testutil.Start(t, follower.Run)
		pause(time.Minute)
		if _, writes := a.counts(); writes != 0 || len(ca.has()) != 0 {
			t.Fatalf("a replica that does not lead has written %d times and knows %q", writes, ca.has())
		}
		run(t, a)
		pause(time.Minute)
		if got := ca.has(); len(got) != 1 || got[0] != string(a.accepted) || !ca.inherited {
			t.Errorf("registered is %q, inherited %t; want what the leader has written", got, ca.inherited)
		}
		end := testutil.Start(t, follower.Lead)
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
