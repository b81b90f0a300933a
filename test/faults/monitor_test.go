// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"strings"
	"testing"

	"sa-controller-manager/test/faults/checker"
)

// TestUnanswered has a process answer or not. A dot is a second, a p one in which it is paused,
// a c one that other programs have taken, an a an answer and an e an error.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	timeout := strings.Repeat(".", checker.UnansweredAtMost)
	cases := map[string]struct {
		reason string
		events string
		want   int // violations
		most   int
	}{
		"silent":               {events: ".a." + timeout, want: 1, most: checker.UnansweredAtMost},
		"refuses":              {reason: "an error is no answer", events: ".a.e.e.e.e.e.e", want: 1, most: checker.UnansweredAtMost},
		"silent again":         {events: ".a." + timeout + "a." + timeout, want: 2, most: checker.UnansweredAtMost},
		"silent in a crowd":    {reason: "the other seconds count", events: ".a.c.c.c.c.c.", want: 1, most: checker.UnansweredAtMost},
		"silent after a pause": {events: ".app." + timeout, want: 1, most: checker.UnansweredAtMost},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, process := &monitor{known: map[*term]*watched{}}, &term{}
			for _, event := range tc.events {
				switch event {
				case 'a':
					m.keep("it", process, checker.Sample{Goroutines: 100}, nil)
				case 'e':
					m.keep("it", process, checker.Sample{}, errors.New("refused"))
				default:
					m.starved = event == 'c'
					m.weigh("it", process, checker.Sample{}, event == 'p')
				}
			}
			_, most, found := m.take()
			if len(found) != tc.want || most.Unanswered != tc.most {
				t.Errorf("%s: %v and %d seconds, want %d violations and %d", tc.reason, found, most.Unanswered, tc.want, tc.most)
			}
		})
	}
}
