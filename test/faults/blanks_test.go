// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

// whole is an outcome in which everything was done and looked at.
func whole() checker.Outcome {
	o := checker.Outcome{
		Injected: map[checker.Kind]int{}, Met: map[checker.Kind]int{}, Skipped: map[checker.Kind]string{},
		Operations: map[string]int{"create account": 1, activated: 1, killed: 1, workload.Edited: 1, workload.Tidied: 1, workload.Copied: 1}, BrokenCalls: 1, Reissued: 1, Bound: 1,
		Pods: 1, Tokens: 1, DeadTokens: 1, Writes: 1, Samples: 1, LogBytes: 1, Objects: 1,
	}
	for _, entry := range Catalogue() {
		o.Injected[entry.Kind] = 1
		if entry.Lane == Requests {
			o.Met[entry.Kind] = 1
		}
	}
	return o
}

func TestBlanks(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		part   Part
		empty  func(*checker.Outcome)
		want   []string
	}{
		"Whole":           {part: FaultsPart, empty: func(*checker.Outcome) {}},
		"WholeLoad":       {part: LoadPart, empty: func(o *checker.Outcome) { o.Injected, o.Met, o.Operations, o.DeadTokens = nil, nil, nil, 0 }},
		"WholeSigner":     {part: SignerPart, empty: func(o *checker.Outcome) { o.Pods, o.Writes = 0, 0 }},
		"WholeRotation":   {part: RotationPart, empty: func(o *checker.Outcome) { delete(o.Injected, "key-garbage") }},
		"NothingReissued": {part: RotationPart, empty: func(o *checker.Outcome) { o.Reissued = 0 }, want: []string{"there were no token Secrets that replace one"}},
		"NeverActivated":  {part: RotationPart, empty: func(o *checker.Outcome) { delete(o.Operations, activated) }, want: []string{"there were no keys that were activated"}},
		"NothingTidied":   {part: RotationPart, empty: func(o *checker.Outcome) { delete(o.Operations, workload.Tidied) }, want: []string{"there were no re-issue pairs that users tidied"}},
		"NotInterrupted":  {part: RotationPart, empty: func(o *checker.Outcome) { delete(o.Injected, "leader-killed") }, want: []string{"fault leader-killed was never injected"}},
		"NeverInjected":   {part: FaultsPart, empty: func(o *checker.Outcome) { delete(o.Injected, "etcd-killed") }, want: []string{"fault etcd-killed was never injected"}},
		"Skipped":         {reason: "the output says so", part: FaultsPart, empty: func(o *checker.Outcome) { o.Injected["disk-full"], o.Skipped["disk-full"] = 0, "only root may" }},
		"NeverMet":        {part: FaultsPart, empty: func(o *checker.Outcome) { o.Met["conflict-409"] = 0 }, want: []string{"fault conflict-409 was injected, and no request ever met it"}},
		"PartitionNotMet": {reason: "it counts though it is of another lane", part: FaultsPart, empty: func(o *checker.Outcome) { o.Met["lease-held"] = 0 }, want: []string{"fault lease-held was injected, and no request ever met it"}},
		"NoPods":          {part: LoadPart, empty: func(o *checker.Outcome) { o.Pods = 0 }, want: []string{"there were no Pods"}},
		"NoOperations":    {part: FaultsPart, empty: func(o *checker.Outcome) { o.Operations = nil }, want: []string{"there were no operations of users"}},
		"NoTokens":        {part: SignerPart, empty: func(o *checker.Outcome) { o.Tokens = 0 }, want: []string{"there were no tokens to verify"}},
		"NoSamples":       {part: LoadPart, empty: func(o *checker.Outcome) { o.Samples = 0 }, want: []string{"there were no samples of a process"}},
		"NoWrites":        {part: FaultsPart, empty: func(o *checker.Outcome) { o.Writes = 0 }, want: []string{"there were no writes of a leader"}},
		"NoBrokenCalls":   {part: SignerPart, empty: func(o *checker.Outcome) { o.BrokenCalls = 0 }, want: []string{"there were no broken clients"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outcome := whole()
			tc.empty(&outcome)
			if diff := cmp.Diff(tc.want, append(Blanks(outcome, tc.part), Unmet(outcome, tc.part)...)); diff != "" {
				t.Errorf("%s\nblanks (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
