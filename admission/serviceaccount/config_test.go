// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"strings"
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
		"JSON": {
			reason: "JSON is YAML",
			data:   `{"mountServiceAccountToken": false, "requireAPIToken": false, "limitSecretReferences": true}`,
			want:   Config{LimitSecretReferences: true, Mode: Projected},
		},
		"Unknown":   {reason: "a setting that does nothing is a mistake", data: "limitSecrets: true", err: `unknown field "limitSecrets"`},
		"Repeated":  {reason: "which one is meant?", data: "mode: secret\nmode: projected", err: `"mode" already set`},
		"WrongType": {reason: "a quoted boolean is a string", data: `requireAPIToken: "false"`, err: "cannot unmarshal string"},
		"WrongMode": {reason: "there are two modes", data: "mode: bound", err: `mode: "bound" is neither "projected" nor "secret"`},
		"NoMode":    {reason: "an empty mode is none of the two", data: `mode: ""`, err: "is neither"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseConfig([]byte(tc.data))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: error %v, want %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			testutil.Check(t, tc.reason, tc.want, got)
		})
	}
}
