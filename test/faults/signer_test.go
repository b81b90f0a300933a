// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"testing"
	"time"
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
