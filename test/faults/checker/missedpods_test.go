// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
)

func TestUntold(t *testing.T) {
	t.Parallel()
	about := func(pods int) []eventsv1.Event {
		var events []eventsv1.Event
		for i := range pods {
			events = append(events, eventsv1.Event{Regarding: corev1.ObjectReference{Namespace: "shop", Name: fmt.Sprint(i)}})
		}
		return events
	}
	all := func(counted int) []eventsv1.Event {
		return []eventsv1.Event{{Note: fmt.Sprintf("Pods that were admitted without the webhook and lack their account or token: %d, the first is shop/0; and so on", counted)}}
	}
	cases := map[string]struct {
		reason    string
		missed    int
		each, all []eventsv1.Event
		want      int
	}{
		"None":       {},
		"AllTold":    {missed: 3, each: about(3)},
		"OneUntold":  {missed: 3, each: about(2), all: all(3), want: 1},
		"NoneTold":   {reason: "a number is not enough where there is room for each", missed: 3, all: all(3), want: 3},
		"Many":       {missed: eventsPerScan + 20, each: about(eventsPerScan), all: all(eventsPerScan + 20)},
		"TooFew":     {missed: eventsPerScan + 20, each: about(eventsPerScan), all: all(eventsPerScan + 19), want: 20},
		"NoSummary":  {missed: eventsPerScan + 20, each: about(eventsPerScan), want: 20},
		"OtherWords": {missed: eventsPerScan + 20, each: about(eventsPerScan), all: []eventsv1.Event{{Note: "many"}}, want: 20},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			missed := map[string]bool{}
			for i := range tc.missed {
				missed[fmt.Sprintf("shop/%d", i)] = true
			}
			if got := WithoutEvent(missed, tc.each, tc.all); len(got) != tc.want {
				t.Errorf("%s: %d are unreported, want %d", tc.reason, len(got), tc.want)
			}
			if len(missed) != tc.missed {
				t.Error("it has changed what it was given")
			}
		})
	}
}
