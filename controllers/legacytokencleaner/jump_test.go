// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/testutil"
)

// The labels say days, and the clock of their writer may be wrong by an hour.
// A round takes the time at which it began, and rounds are a day of even time apart.

// TestPlanAcrossAJump marks and deletes at every hour of a day, with clocks that are wrong
// when the label is written, when it is read, or both. A period is shorter by what they are
// apart at most, and longer by that and a day.
func TestPlanAcrossAJump(t *testing.T) {
	t.Parallel()
	const period = 48 * time.Hour
	cases := map[string]struct{ write, read time.Duration }{
		"None":            {},
		"Forward":         {read: time.Hour},
		"Back":            {read: -time.Hour},
		"ForwardThenBack": {write: time.Hour},
		"BackThenForward": {write: -time.Hour},
		"Far":             {write: -time.Hour, read: time.Hour},
		"FarBack":         {write: time.Hour, read: -time.Hour},
	}
	labels := map[string]struct {
		label func(date string) func(*corev1.Secret)
		then  decision
	}{
		"Marked": {label: invalidSince, then: remove},
		"Used":   {label: usedOn, then: mark},
	}
	for name, tc := range cases {
		for what, labelled := range labels {
			t.Run(what+name, func(t *testing.T) {
				t.Parallel()
				apart := tc.read - tc.write
				for hour := range 24 {
					written := time.Date(2023, 5, 10, hour, 30, 0, 0, time.UTC)
					date := newHorizon(written.Add(tc.write), period).today()
					seen := observed{secret: tokensecrets.Observe(tokenSecret(labelled.label(date))), account: account()}
					waited := time.Duration(0)
					for waited < 5*period && newHorizon(written.Add(waited+tc.read), period).plan(seen) != labelled.then {
						waited += 30 * time.Minute
					}
					if least, most := period-max(apart, 0), period+24*time.Hour-min(apart, 0); waited < least || waited > most {
						t.Errorf("written at %v, it is %s after %v, want between %v and %v", written, labelled.then, waited, least, most)
					}
				}
			})
		}
	}
}

// TestRoundAcrossAJump: the clock jumps over midnight after the survey. What is decided then
// goes by the day on which the round began.
func TestRoundAcrossAJump(t *testing.T) {
	t.Parallel()
	beforeMidnight, afterMidnight := time.Date(2023, 5, 10, 23, 30, 0, 0, time.UTC), time.Date(2023, 5, 11, 0, 30, 0, 0, time.UTC)
	cases := map[string]struct {
		reason string
		began  time.Time
		jump   time.Duration
		secret *corev1.Secret
		want   map[string]float64
	}{
		"ForwardMark":   {reason: "with the date of the beginning", began: beforeMidnight, jump: time.Hour, secret: tokenSecret(), want: map[string]float64{"marked": 1}},
		"ForwardUsed":   {reason: "it was used a period ago, to the day", began: beforeMidnight, jump: time.Hour, secret: tokenSecret(usedOn(cutoffDay))},
		"ForwardMarked": {reason: "it has not been marked for a whole period", began: beforeMidnight, jump: time.Hour, secret: tokenSecret(invalidSince(cutoffDay))},
		"BackMarked":    {reason: "it has", began: afterMidnight, jump: -time.Hour, secret: tokenSecret(invalidSince(cutoffDay)), want: map[string]float64{"deleted": 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil, account(), tc.secret, tracking(longAgo))
			w.Clock.SetTime(tc.began)
			if err := w.sync(t.Context(), wholeCluster); err != nil {
				t.Fatal(err)
			}
			w.Clock.SetTime(tc.began.Add(tc.jump))
			if err := w.sync(t.Context(), "ns"); err != nil {
				t.Fatal(err)
			}
			want := tc.want
			if want == nil {
				want = map[string]float64{}
			}
			if diff := cmp.Diff(want, w.Series(t, "sacm_legacy_token_cleanups_total")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if name != "ForwardMark" {
				return
			}
			secret, err := w.Client.CoreV1().Secrets("ns").Get(t.Context(), "app-token", metav1.GetOptions{})
			if err != nil || secret.Labels[tokensecrets.InvalidSinceLabel] != today {
				t.Errorf("marked with %v (%v), want %s", secret.Labels, err, today)
			}
		})
	}
}

// TestRestartAcrossAJump: another process, whose clock is an hour off, finds the mark of
// today, yesterday or tomorrow, and leaves it.
func TestRestartAcrossAJump(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		marked time.Time
		jump   time.Duration
	}{
		"Forward": {marked: time.Date(2023, 5, 10, 23, 30, 0, 0, time.UTC), jump: time.Hour},
		"Back":    {marked: time.Date(2023, 5, 10, 0, 30, 0, 0, time.UTC), jump: -time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := newWorld(t, nil, account(), tokenSecret(), tracking(longAgo))
			first.Clock.SetTime(tc.marked)
			if err := first.runRound(t); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{listPods, marked}, first.actions(t)); diff != "" {
				t.Fatalf("the first round (-want +got):\n%s", diff)
			}
			secret, err := first.Client.CoreV1().Secrets("ns").Get(t.Context(), "app-token", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			next := newWorld(t, nil, account(), secret, tracking(longAgo))
			next.Clock.SetTime(tc.marked.Add(tc.jump))
			if err := next.runRound(t); err != nil {
				t.Fatal(err)
			}
			if acts := next.actions(t); len(acts) > 0 {
				t.Errorf("the next process does %q, want nothing", acts)
			}
		})
	}
}

// TestScheduleAcrossAJump: neither is a round left out nor one made too early.
func TestScheduleAcrossAJump(t *testing.T) {
	t.Parallel()
	testutil.EachJump(t, func(t *testing.T, jump time.Duration) {
		clock := testutil.NewJumpingClock()
		w := newWorld(t, func(c *Config) { c.Clock = clock }, tracking(longAgo))
		began := time.Now()
		var looks []string
		w.Client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			looks = append(looks, time.Since(began).String())
			return false, nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		synctest.Wait()
		clock.Jump(jump)
		time.Sleep(49 * time.Hour)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"0s", "24h0m0s", "48h0m0s"}, looks); diff != "" {
			t.Errorf("looks (-want +got):\n%s", diff)
		}
	})
}
