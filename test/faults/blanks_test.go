// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

func TestBlanks(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		part   Part
		empty  func(*checker.Outcome)
		want   []string
	}{
		"Whole": {part: FaultsPart, empty: func(*checker.Outcome) {}},
		"Skipped": {
			reason: "the output says so", part: FaultsPart,
			empty: func(o *checker.Outcome) { o.Injected["disk-full"], o.Skipped["disk-full"] = 0, "only root may" },
		},
		"NothingReissued": {
			part: RotationPart, empty: func(o *checker.Outcome) { o.Reissued = 0 }, want: []string{"there were no token Secrets that replace one"},
		},
		"NotInterrupted": {
			part: RotationPart, empty: func(o *checker.Outcome) { delete(o.Injected, "leader-killed") },
			want: []string{"fault leader-killed was never injected"},
		},
		"NeverInjected": {
			part: FaultsPart, empty: func(o *checker.Outcome) { delete(o.Injected, "etcd-killed") },
			want: []string{"fault etcd-killed was never injected"},
		},
		"NeverMet": {
			part: FaultsPart, empty: func(o *checker.Outcome) { o.Met["conflict-409"] = 0 },
			want: []string{"fault conflict-409 was injected, and no request ever met it"},
		},
		"NoOperations": {
			part: FaultsPart, empty: func(o *checker.Outcome) { o.Operations = nil }, want: []string{"there were no operations of users"},
		},
		"NoBrokenCalls": {
			part: SignerPart, empty: func(o *checker.Outcome) { o.BrokenCalls = 0 }, want: []string{"there were no broken clients"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outcome := checker.Outcome{
				Injected: map[checker.Kind]int{}, Met: map[checker.Kind]int{}, Skipped: map[checker.Kind]string{},
				Operations:  map[string]int{activated: 1, killed: 1, workload.Edited: 1, workload.Tidied: 1, workload.Copied: 1},
				BrokenCalls: 1, Reissued: 1, Bound: 1, Pods: 1, Tokens: 1, DeadTokens: 1, Writes: 1, Samples: 1, LogBytes: 1, Objects: 1,
			}
			for _, entry := range Catalogue() {
				outcome.Injected[entry.Kind] = 1
			}
			tc.empty(&outcome)
			testutil.Check(t, tc.reason+"\nblanks", tc.want, append(Blanks(outcome, tc.part), Unmet(outcome, tc.part)...))
		})
	}
}
