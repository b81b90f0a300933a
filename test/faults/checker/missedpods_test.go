// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
)

func TestWithoutEvent(t *testing.T) {
	t.Parallel()
	const many = eventsPerScan + 20
	cases := map[string]struct {
		reason                string
		missed, each, counted int
		want                  int
	}{
		"One":       {missed: 3, each: 2, counted: 3, want: 1},
		"All":       {reason: "a number is not enough where there is room for each", missed: 3, counted: 3, want: 3},
		"Many":      {missed: many, each: eventsPerScan, counted: many},
		"TooFew":    {missed: many, each: eventsPerScan, counted: many - 1, want: 20},
		"NoSummary": {missed: many, each: eventsPerScan, want: 20},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			missed := map[string]bool{}
			for i := range tc.missed {
				missed[fmt.Sprintf("shop/%d", i)] = true
			}
			var each, all []eventsv1.Event
			for i := range tc.each {
				each = append(each, eventsv1.Event{Regarding: corev1.ObjectReference{Namespace: "shop", Name: fmt.Sprint(i)}})
			}
			if tc.counted > 0 {
				all = append(all, eventsv1.Event{Note: fmt.Sprintf("Pods that lack their account or token: %d, the first is shop/0", tc.counted)})
			}
			if got := WithoutEvent(missed, each, all); len(got) != tc.want {
				t.Errorf("%s: %d are unreported, want %d", tc.reason, len(got), tc.want)
			}
		})
	}
}
