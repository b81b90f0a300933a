// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	logsapi "k8s.io/component-base/logs/api/v1"
)

func TestForeignFlags(t *testing.T) {
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
			problems: []string{"--cluster-name does not concern this program, and --strict-flags refuses such flags"},
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
			if diff := cmp.Diff(tc.given, o.Foreign.Given); diff != "" {
				t.Errorf("%s\ngiven (-want +got):\n%s", tc.reason, diff)
			}
			var problems []string
			for _, err := range o.Foreign.Validate() {
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
func TestForeignFlagsAreSound(t *testing.T) {
	t.Parallel()
	var names []string
	for _, f := range foreignFlags() {
		if slices.Contains(names, f.name) {
			t.Errorf("--%s is listed twice", f.name)
		}
		names = append(names, f.name)
	}
	help := command(t, "--help").stdout
	for _, name := range names {
		if strings.Contains(help, "--"+name+" ") {
			t.Errorf("--help shows --%s", name)
		}
	}
}

// It sets up logging, so it is not parallel.
func TestForeignFlagsDoNotKeepItFromStarting(t *testing.T) {
	t.Cleanup(func() {
		if err := logsapi.ResetForTest(nil); err != nil {
			t.Error(err)
		}
	})
	started := false
	got := commandWith(t.Context(), func(context.Context, *Options) error {
		started = true
		return nil
	}, "--cluster-signing-cert-file=/nowhere", "--allocate-node-cidrs")
	if !started || got.code != 0 {
		t.Errorf("started %v, exit code %d, want a start:\n%s", started, got.code, got.stderr)
	}
}
