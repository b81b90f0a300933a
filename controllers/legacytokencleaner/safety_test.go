// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sa-controller-manager/internal/testutil"
)

func TestClockDiffers(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	cases := map[string]struct {
		reason  string
		renewed []time.Duration // ago
		want    bool
	}{
		"NoNode":         {reason: "there is nothing to compare with"},
		"OneNode":        {reason: "it may be that of this process", renewed: []time.Duration{year}},
		"Right":          {renewed: []time.Duration{time.Second, 10 * time.Second, 5 * time.Second}},
		"Ahead":          {renewed: []time.Duration{year, year, year}, want: true},
		"Behind":         {renewed: []time.Duration{-year, -year, -year}, want: true},
		"LittleAhead":    {renewed: []time.Duration{time.Hour, time.Hour}},
		"OneDeadNode":    {renewed: []time.Duration{year, time.Second, time.Second}},
		"MostAreDead":    {reason: "nothing is known", renewed: []time.Duration{year, year, time.Second}, want: true},
		"OursIsOneOfTwo": {reason: "the other one has the right time", renewed: []time.Duration{0, year}, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var renewed []time.Time
			for _, ago := range tc.renewed {
				renewed = append(renewed, noon().Add(-ago))
			}
			if got := clockDiffers(noon(), renewed); got != tc.want {
				t.Errorf("%s: %t", tc.reason, got)
			}
		})
	}
}

func nodeLease(name string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

// TestNothingIsDoneWithAWrongClock: a leader whose clock is a year ahead would have every token
// refused that was not used in the future.
func TestNothingIsDoneWithAWrongClock(t *testing.T) {
	t.Parallel()
	actual := noon().Add(-365 * 24 * time.Hour)
	objects := []runtime.Object{tracking("2020-01-01"), account(), tokenSecret(usedOn(actual.Format(dateFormat)))}
	w := newWorld(t, nil, append(objects, nodeLease("a", actual), nodeLease("b", actual))...)
	w.runOnce(t)
	testutil.Check(t, "decisions", map[string]float64{}, w.decisions(t))
	if got := w.Series(t, "sacm_legacy_token_cleaner_idle")["clock-differs"]; got != 1 {
		t.Errorf("the reason is not shown: %v", w.Series(t, "sacm_legacy_token_cleaner_idle"))
	}
}
