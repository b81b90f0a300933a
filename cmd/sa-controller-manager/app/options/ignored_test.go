// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIgnoredFlags(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		args     []string
		given    []string
		problems []string
	}{
		"None": {},
		"Ours": {args: []string{"--root-ca-file=x"}},
		"WithValue": {
			args:  []string{"--cluster-cidr=10.0.0.0/8", "--node-eviction-rate", "0.1"},
			given: []string{"cluster-cidr", "node-eviction-rate"},
		},
		"SwitchWithoutValue": {
			reason: "the next argument is not its value",
			args:   []string{"--allocate-node-cidrs", "--cluster-name=kind"},
			given:  []string{"allocate-node-cidrs", "cluster-name"},
		},
		"Twice":      {args: []string{"--cluster-name=a", "--cluster-name=b"}, given: []string{"cluster-name"}},
		"Deprecated": {reason: "KCM takes it and does not show it", args: []string{"--allow-untagged-cloud"}, given: []string{"allow-untagged-cloud"}},
		"Strict": {
			args:     []string{"--strict-flags", "--cluster-name=a"},
			given:    []string{"cluster-name"},
			problems: []string{"--cluster-name is ignored by this program, and --strict-flags refuses such flags"},
		},
		"FeatureGates": {args: []string{"--feature-gates=A=true,kube:B=false"}},
		"FeatureGatesStrict": {
			args:     []string{"--strict-flags", "--feature-gates=A=true,kube:B=false"},
			problems: []string{`--feature-gates "A=true,B=false" must be empty with --strict-flags: this program has no feature gates`},
		},
		"NoFeatureGate": {
			args:     []string{"--feature-gates=A,B=maybe"},
			problems: []string{`--feature-gates "A" must have the form name=true or name=false`, `--feature-gates "B=maybe" must have the form name=true or name=false`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := parse(t, tc.args...)
			if diff := cmp.Diff(tc.given, o.Ignored.Given); diff != "" {
				t.Errorf("%s\ngiven (-want +got):\n%s", tc.reason, diff)
			}
			var problems []string
			for _, err := range o.Ignored.Validate() {
				problems = append(problems, err.Error())
			}
			if diff := cmp.Diff(tc.problems, problems); diff != "" {
				t.Errorf("%s\nproblems (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A wrong list would let an unknown flag through or refuse one that KCM has. Which
// those are, a test beside the real binary says.
func TestIgnoredFlagsAreSound(t *testing.T) {
	t.Parallel()
	var names []string
	for _, f := range IgnoredFlags() {
		if slices.Contains(names, f.Name) {
			t.Errorf("--%s is listed twice", f.Name)
		}
		names = append(names, f.Name)
	}
}
