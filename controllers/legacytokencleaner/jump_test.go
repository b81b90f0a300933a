// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/testutil"
)

// The labels say days, and the clock of their writer may be wrong by an hour.
// A run takes the time at which it began, and runs are a day of even time apart.

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
				apart := tc.read - tc.write
				for hour := range 24 {
					written := time.Date(2023, 5, 10, hour, 30, 0, 0, time.UTC)
					date := newHorizon(written.Add(tc.write), period).today()
					o := observed{secret: tokensecrets.Observe(tokenSecret(labelled.label(date))), account: account()}
					waited := time.Duration(0)
					for waited < 5*period && newHorizon(written.Add(waited+tc.read), period).plan(o) != labelled.then {
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

// TestRunAcrossAJump: the clock jumps over midnight after the survey. What is decided then
// goes by the day on which the run began.
func TestRunAcrossAJump(t *testing.T) {
	t.Parallel()
	beforeMidnight, afterMidnight := time.Date(2023, 5, 10, 23, 30, 0, 0, time.UTC), time.Date(2023, 5, 11, 0, 30, 0, 0, time.UTC)
	cases := map[string]struct {
		reason string
		began  time.Time
		jump   time.Duration
		secret *corev1.Secret
		want   map[string]float64
	}{
		"ForwardMark": {
			reason: "with the date of the beginning", began: beforeMidnight, jump: time.Hour, secret: tokenSecret(),
			want: map[string]float64{"marked": 1},
		},
		"ForwardUsed": {
			reason: "it was used a period ago, to the day", began: beforeMidnight, jump: time.Hour, secret: tokenSecret(usedOn(cutoffDay)),
		},
		"ForwardMarked": {
			reason: "it has not been marked for a whole period", began: beforeMidnight, jump: time.Hour,
			secret: tokenSecret(invalidSince(cutoffDay)),
		},
		"BackMarked": {
			reason: "it has", began: afterMidnight, jump: -time.Hour, secret: tokenSecret(invalidSince(cutoffDay)),
			want: map[string]float64{"deleted": 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, account(), tc.secret, tracking(longAgo))
			w.Clock.SetTime(tc.began)
			testutil.Must(t, w.sync(t.Context(), wholeCluster))
			w.Clock.SetTime(tc.began.Add(tc.jump))
			testutil.Must(t, w.sync(t.Context(), "ns"))
			testutil.Check(t, tc.reason, orNone(tc.want), w.Series(t, "sacm_legacy_token_cleanups_total"))
			if name == "ForwardMark" {
				testutil.Check(t, "mark", today, w.LiveSecret(t, "ns", "app-token").Labels[tokensecrets.InvalidSinceLabel])
			}
		})
	}
}
