// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/test/faults/checker"
)

// TestJudgeSignatures wants each way to leave the caller in order alone to be a violation.
func TestJudgeSignatures(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*signatures)
		want   int
	}{
		"well":         {"all calls were answered", func(*signatures) {}, 0},
		"one failed":   {"it was refused", func(s *signatures) { s.note("", time.Second, errors.New("refused")) }, 1},
		"nothing made": {"nobody was asked", func(s *signatures) { *s = signatures{} }, 1},
		"keys alone":   {"nothing was signed", func(s *signatures) { s.tokens = nil }, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := signatures{tokens: map[string]bool{}}
			for range 100 {
				s.note("token", time.Millisecond, nil)
			}
			tc.change(&s)
			if got := s.violations(); len(got) != tc.want {
				t.Errorf("%s: %v, want %d violations", tc.reason, got, tc.want)
			}
		})
	}
}

// TestTableOfLoads wants broken clients to be counted where they are aimed, beside faults.
func TestTableOfLoads(t *testing.T) {
	t.Parallel()
	killed := checker.Outcome{Injected: map[checker.Kind]int{"replica-killed": 3}}
	rows := Table(killed, checker.Outcome{BrokenCalls: 100, BrokenKinds: 10}, checker.Outcome{BrokenCalls: 50, BrokenKinds: 12, Violations: []checker.Violation{checker.Violated(8, "many")}})
	want := Row{Promise: 8, Text: rows[7].Text, Attacks: 23, Faults: 153, Violations: 1}
	if diff := cmp.Diff(want, rows[7]); diff != "" {
		t.Errorf("promise 8 (-want +got):\n%s", diff)
	}
	if rows[0].Attacks != 1 || rows[0].Faults != 3 {
		t.Errorf("promise 1: %+v, want the faults alone", rows[0])
	}
}
