// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"strings"
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

func TestJWKS(t *testing.T) {
	t.Parallel()
	active, retired := testutil.WriteFile(t, "sa.key", testkeys.P256()), testutil.WriteFile(t, "old.pem", testkeys.P384())
	ring := []string{"--service-account-private-key-file=" + active, "--service-account-key-file=" + retired}
	both := string(clitest.JWKS(t, testkeys.P256(), testkeys.P384())) + "\n"
	cases := map[string]struct {
		args   []string
		code   int
		stdout string // in full, or its beginning with ...
		stderr string
	}{
		"document":     {nil, 0, both, ""},
		"idle context": {[]string{"--context=typo"}, 1, "", "Error: --context \"typo\" must be left out: this call asks no cluster\n"},
		"idle format":  {[]string{"-o=json"}, 1, "", "Error: --output \"json\" is for --check; a JWKS is always JSON\n"},
		"same": {
			[]string{"--check=" + testutil.WriteFile(t, "keys.json", clitest.JWKS(t, testkeys.P384(), testkeys.P256()))}, 0,
			"KEY-ID...", "",
		},
		"drift": {
			[]string{"--check=" + testutil.WriteFile(t, "keys.json", clitest.JWKS(t, testkeys.P256(), testkeys.P521())), "-o=yaml"}, 2,
			"apiVersion: sa-controller-manager/v1\nkeys:\n- algorithm: ES256\n  keyID: " + p256ID +
				"\n  result: same\n  state: active\n...", "The published keys are not the given ones.\n",
		},
		"nothing there": {[]string{"--check=testdata/none"}, 1, "", "Error: read keys: open testdata/none: no such file or directory\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t, NewJWKSCommand(cli.Connect), append(append([]string{}, ring...), tc.args...)...)
			got.Stderr, _, _ = strings.Cut(got.Stderr, "See '")
			if beginning, ok := strings.CutSuffix(tc.stdout, "..."); ok && strings.HasPrefix(got.Stdout, beginning) {
				got.Stdout = tc.stdout
			}
			testutil.Check(t, "result", clitest.Outcome{Code: tc.code, Stdout: tc.stdout, Stderr: tc.stderr}, got)
		})
	}
	if got := clitest.Run(t, NewJWKSCommand(cli.Connect)); got.Code != 1 ||
		got.Stderr != "Error: want keys: give --service-account-key-ring, --service-account-private-key-file or "+
			"--service-account-key-file\n" {
		t.Errorf("without keys: %+v", got)
	}
}
