// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/signing/testkeys"
)

func TestJWKS(t *testing.T) {
	t.Parallel()
	active, retired := writeFile(t, "sa.key", testkeys.P256()), writeFile(t, "old.pem", testkeys.P384())
	ring := []string{"keys", "jwks", "--service-account-private-key-file=" + active, "--service-account-key-file=" + retired}
	both := string(clitest.JWKS(t, testkeys.P256(), testkeys.P384())) + "\n"
	cases := map[string]struct {
		args   []string
		code   int
		stdout string // in full, or its beginning with ...
		stderr string
	}{
		"document":      {nil, 0, both, ""},
		"discovery":     {[]string{"--discovery", "--issuer=https://a"}, 0, `{"issuer":"https://a","jwks_uri":"https://a/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256","ES384"]}` + "\n", ""},
		"plain issuer":  {[]string{"--discovery", "--issuer=kubernetes"}, 1, "", "Error: the issuer must be an https URL, such as https://example.com\n"},
		"no issuer":     {[]string{"--discovery"}, 1, "", "Error: --issuer \"\" must be the URL of the issuer\n"},
		"idle issuer":   {[]string{"--issuer=https://a"}, 1, "", "Error: --issuer \"https://a\" is for --discovery\n"},
		"idle URI":      {[]string{"--jwks-uri=https://a"}, 1, "", "Error: --jwks-uri \"https://a\" is for --discovery\n"},
		"idle format":   {[]string{"-o=json"}, 1, "", "Error: --output \"json\" is for --check; a JWKS is always JSON\n"},
		"both":          {[]string{"--discovery", "--issuer=https://a", "--check=x"}, 1, "", "Error: --discovery true and --check exclude each other\n"},
		"same":          {[]string{"--check=" + writeFile(t, "keys.json", clitest.JWKS(t, testkeys.P384(), testkeys.P256()))}, 0, "KEY-ID...", ""},
		"drift":         {[]string{"--check=" + writeFile(t, "keys.json", clitest.JWKS(t, testkeys.P256(), testkeys.P521())), "-o=yaml"}, 2, "keys:\n...", "What is published is not what the keys are.\n"},
		"nothing there": {[]string{"--check=testdata/none"}, 1, "", "Error: read keys: open testdata/none: no such file or directory\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := command(t, append(append([]string{}, ring...), tc.args...)...)
			got.stderr, _, _ = strings.Cut(got.stderr, "See '")
			if beginning, ok := strings.CutSuffix(tc.stdout, "..."); ok && strings.HasPrefix(got.stdout, beginning) {
				got.stdout = tc.stdout
			}
			if diff := cmp.Diff(outcome{tc.code, tc.stdout, tc.stderr}, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if got := command(t, "keys", "jwks"); got.code != 1 || got.stderr != "Error: want keys: give --service-account-key-ring, --service-account-private-key-file or --service-account-key-file\n" {
		t.Errorf("without keys: %+v", got)
	}
}

// TestKeysOfARing have the states that they have there.
func TestKeysOfARing(t *testing.T) {
	t.Parallel()
	ring := "--service-account-key-ring=" + filepath.Join(t.TempDir(), "keys")
	old := "--service-account-key-file=" + writeFile(t, "old.pem", testkeys.P384())
	steps := [][]string{
		{"keys", "init", ring, "--from-private-key-file=" + writeFile(t, "sa.key", testkeys.P256())}, {"keys", "rotate", "start", ring},
	}
	for _, args := range steps {
		if got := command(t, args...); got.code != 0 {
			t.Fatalf("%q: %+v", args, got)
		}
	}
	got := command(t, "keys", "jwks", ring, old, "--check="+writeFile(t, "keys.json", clitest.JWKS(t, testkeys.P256())))
	lines := strings.Split(got.stdout, "\n")
	if got.code != 2 || len(lines) != 5 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []string{"active    same", "next      missing", "retired   missing"} {
		if !strings.Contains(lines[i+1], want) {
			t.Errorf("line %q, want %q", lines[i+1], want)
		}
	}
	got = command(t, "tokens", "inspect", ring, writeFile(t, "token", []byte(clitest.LegacyToken(t))))
	if got.code != 0 || !strings.Contains(got.stdout, "(ES256), active, of --service-account-key-ring") {
		t.Errorf("%+v", got)
	}
}
