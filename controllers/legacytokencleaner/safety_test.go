// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sa-controller-manager/controllers/tokensecrets"
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
	w.rounds(t)
	testutil.Check(t, "decisions", map[string]float64{}, w.decisions(t))
	if got := w.Series(t, "sacm_legacy_token_cleaner_idle")["clock-differs"]; got != 1 {
		t.Errorf("the reason is not shown: %v", w.Series(t, "sacm_legacy_token_cleaner_idle"))
	}
}

// unused are so many unused token Secrets, each with an account.
func unused(n int) []runtime.Object {
	objects := []runtime.Object{tracking("2020-01-01")}
	for i := range n {
		name := fmt.Sprintf("app-%03d", i)
		objects = append(objects,
			account(func(a *corev1.ServiceAccount) {
				a.Name, a.Secrets = name, []corev1.ObjectReference{{Name: name + "-token"}}
			}),
			tokenSecret(renamed(name+"-token"), annotated(corev1.ServiceAccountNameKey, name)))
	}
	return objects
}

func TestARoundMarksATenth(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		secrets   int
		unlimited bool
		want      map[string]float64
		events    int
	}{
		"Few":       {secrets: 9, want: map[string]float64{"mark": 9}},
		"Ten":       {secrets: 10, want: map[string]float64{"mark": 10}},
		"AtLeast":   {secrets: 30, want: map[string]float64{"mark": 10, "limited": 20}, events: 1},
		"Tenth":     {secrets: 200, want: map[string]float64{"mark": 20, "limited": 180}, events: 1},
		"Unlimited": {secrets: 30, unlimited: true, want: map[string]float64{"mark": 30}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) {
				c.Unlimited = tc.unlimited
				c.Process = &corev1.ObjectReference{Kind: "Lease", Name: "process"}
			}, unused(tc.secrets)...)
			w.rounds(t)
			testutil.Check(t, "decisions", tc.want, w.decisions(t))
			told := 0
			for _, event := range w.Events() {
				if event == "Warning "+reasonLimited {
					told++
				}
			}
			if told != tc.events {
				t.Errorf("%d Events about the limit, want %d", told, tc.events)
			}
		})
	}
}

// TestNoFurtherRoundMarks: the marks outlive the process, and so does the limit.
func TestNoFurtherRoundMarks(t *testing.T) {
	t.Parallel()
	secrets := func(marks map[string]int, all int) []*tokensecrets.TokenSecret {
		var secrets []*tokensecrets.TokenSecret
		for day, n := range marks {
			for range n {
				secrets = append(secrets, tokensecrets.Observe(tokenSecret(invalidSince(day))))
			}
		}
		for len(secrets) < all {
			secrets = append(secrets, tokensecrets.Observe(tokenSecret()))
		}
		return secrets
	}
	const today, yesterday = "2023-05-10", "2023-05-09"
	cases := map[string]struct {
		reason string
		marks  map[string]int
		all    int
		want   int
	}{
		"None":        {all: 30, want: 10},
		"OfATenth":    {all: 300, want: 30},
		"EarlierDay":  {reason: "it was no full round", marks: map[string]int{yesterday: 9}, all: 30, want: 10},
		"SameDay":     {reason: "a restart begins a round again", marks: map[string]int{today: 4}, all: 30, want: 6},
		"Reached":     {marks: map[string]int{today: 10}, all: 30, want: 0},
		"ReachedOnce": {reason: "until the flag is given", marks: map[string]int{"2023-01-01": 10, yesterday: 1}, all: 30, want: 0},
		"InTheFuture": {reason: "by a wrong clock", marks: map[string]int{"2031-01-01": 11}, all: 30, want: 0},
		"NoDate":      {marks: map[string]int{"soon": 20}, all: 30, want: 10},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := marksLeft(secrets(tc.marks, tc.all), today); got != tc.want {
				t.Errorf("%s: %d left, want %d", tc.reason, got, tc.want)
			}
		})
	}
}
