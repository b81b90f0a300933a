// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"testing"

	"sa-controller-manager/internal/testutil"
)

// TestAutoExcluded: the control plane's own accounts get no token Secrets by default, and what is
// given wins over what follows from another flag.
func TestAutoExcluded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason     string
		args, want []string
	}{
		"Default":           {want: []string{"kube-system", "kube-public", "kube-node-lease"}},
		"Given":             {args: []string{"--token-secrets-excluded-namespaces=kube-system,infra"}, want: []string{"kube-system", "infra"}},
		"GivenEmpty":        {args: []string{"--token-secrets-excluded-namespaces="}, want: []string{}},
		"PodsNeedThem":      {reason: "Pods of the control plane mount them, too", args: []string{"--pod-token=secret"}},
		"GivenWithPodToken": {args: []string{"--pod-token=secret", "--token-secrets-excluded-namespaces=infra"}, want: []string{"infra"}},
		"GivenAsTheyAre": {
			args: []string{"--pod-token=secret", "--token-secrets-excluded-namespaces=kube-system,kube-public,kube-node-lease"},
			want: []string{"kube-system", "kube-public", "kube-node-lease"},
		},
		"PodsAreProjected":   {args: []string{"--pod-token=projected"}, want: []string{"kube-system", "kube-public", "kube-node-lease"}},
		"WordsAsUnderscores": {args: []string{"--token_secrets_excluded_namespaces=infra", "--pod_token=secret"}, want: []string{"infra"}},
	} {
		t.Run(name, func(t *testing.T) { testutil.Check(t, tc.reason, tc.want, parse(t, tc.args...).AutoExcluded()) })
	}
	testutil.Check(t, "namespaces without a command line", 3, len(New().AutoExcluded()))
}
