// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"testing"

	"sa-controller-manager/internal/testutil"
)

func TestIgnoredFlags(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason      string
		args, given []string
	}{
		"None": {},
		"WithValue": {
			args: []string{"--cluster-cidr=10.0.0.0/8", "--node-eviction-rate", "0.1"}, given: []string{"cluster-cidr", "node-eviction-rate"},
		},
		"SwitchWithoutValue": {
			reason: "the next argument is not its value", args: []string{"--allocate-node-cidrs", "--cluster-name=kind"},
			given: []string{"allocate-node-cidrs", "cluster-name"},
		},
		"Deprecated": {
			reason: "KCM takes it and does not show it", args: []string{"--allow-untagged-cloud"}, given: []string{"allow-untagged-cloud"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := parse(t, tc.args...)
			testutil.Check(t, tc.reason+"\ngiven", tc.given, o.Ignored.Given)
		})
	}
}
