// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"testing"

	"sa-controller-manager/internal/testutil"
)

func TestParseConfig(t *testing.T) {
	t.Parallel()
	defaults := DefaultConfig()
	cases := map[string]struct {
		reason string
		data   string
		want   Config
		err    string // part of the error
	}{
		"Empty": {reason: "no configuration is upstream's", data: "", want: defaults},
		"YAML": {
			reason: "what is said replaces the default, the rest stays",
			data:   "limitSecretReferences: true\nmode: secret\n",
			want:   Config{LimitSecretReferences: true, MountServiceAccountToken: true, RequireAPIToken: true, Mode: Secret},
		},
		"Unknown":   {reason: "a setting that does nothing is a mistake", data: "limitSecrets: true", err: `unknown field "limitSecrets"`},
		"Repeated":  {reason: "which one is meant?", data: "mode: secret\nmode: projected", err: `"mode" already set`},
		"WrongType": {reason: "a quoted boolean is a string", data: `requireAPIToken: "false"`, err: "cannot unmarshal string"},
		"WrongMode": {reason: "there are two modes", data: "mode: bound", err: `mode: "bound" is neither "projected" nor "secret"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseConfig([]byte(tc.data))
			testutil.CheckError(t, tc.reason, tc.err, err)
			testutil.Check(t, tc.reason, tc.want, got)
		})
	}
}
