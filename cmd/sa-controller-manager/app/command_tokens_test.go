// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

// legacyToken is signed with the P-256 key of tests.
func legacyToken(t *testing.T) string {
	t.Helper()
	key, err := signing.ParsePrivateKey(testkeys.P256())
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.NewIssuer(key, tokens.CompatClaims).Legacy(t.Context(), tokens.Account{Namespace: "shop", Name: "robot", UID: "1"}, "robot-token")
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func noCluster(*options.Connection) (kubernetes.Interface, error) { return fake.NewClientset(), nil }

// inspectInput runs the command on standard input.
func inspectInput(t *testing.T, input string, args ...string) (stdout string, err error) {
	t.Helper()
	cmd := newTokensCommand(noCluster)
	var out bytes.Buffer
	cmd.SetIn(strings.NewReader(input))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"inspect"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestInspectReads(t *testing.T) {
	t.Parallel()
	token, key := legacyToken(t), "--service-account-key-file="+writeFile(t, "key", testkeys.P256())
	cases := map[string]struct {
		input string
		args  []string
		want  error
		say   string
	}{
		"standard input":    {token, []string{key}, nil, "Verdict:       valid"},
		"dash":              {token, []string{key, "-"}, nil, "Verdict:       valid"},
		"file":              {"", []string{key, writeFile(t, "token", []byte(token+"\n"))}, nil, "Verdict:       valid"},
		"line feeds":        {"\r\n " + token + " \n", []string{key}, nil, "Verdict:       valid"},
		"of a header":       {"Bearer " + token, []string{key}, nil, "Verdict:       valid"},
		"in small letters":  {"bearer  " + token, []string{key}, nil, "Verdict:       valid"},
		"two tokens":        {token + "\n" + token, []string{key}, cli.ErrFindings, "malformed token"},
		"nothing":           {" \n", []string{key}, nil, "read the token from standard input: there is nothing"},
		"too much":          {strings.Repeat("a", 128<<10+1), []string{key}, nil, "read the token from standard input: it is larger than 131072 bytes"},
		"other key":         {token, []string{"--service-account-key-file=" + writeFile(t, "key", testkeys.P384())}, cli.ErrFindings, "none of the 1 keys"},
		"no key":            {token, nil, cli.ErrReported, "Verdict:     unknown"},
		"JWKS":              {token, []string{"--jwks=" + writeFile(t, "keys.json", jwksOf(t, testkeys.P256()))}, nil, "published, of --jwks="},
		"active key":        {token, []string{"--service-account-private-key-file=" + writeFile(t, "key", testkeys.P256())}, nil, "(ES256), active, of --service-account-private-key-file"},
		"missing file":      {"", []string{"testdata/none"}, nil, "read the token: open testdata/none: no such file or directory"},
		"plain HTTP":        {token, []string{"--jwks=http://example.com"}, nil, "get keys: want an https URL"},
		"two files":         {"", []string{"a", "b"}, nil, "takes one file at most, got 2 arguments"},
		"format":            {token, []string{"-o=table"}, nil, `--output "table" must be one of "text", "json", "yaml"`},
		"empty issuer":      {token, []string{"--service-account-issuer="}, nil, `--service-account-issuer "" must be an issuer`},
		"unreadable CA":     {token, []string{"--jwks=https://localhost", "--ca-file=" + writeFile(t, "ca", nil)}, nil, "want PEM with at least one certificate"},
		"no time":           {token, []string{"--timeout=0"}, nil, "--timeout 0s must be greater than 0"},
		"machine readable":  {token, []string{key, "-o=json"}, nil, `"verdict": "valid"`},
		"machine readable2": {token, []string{key, "-o=yaml"}, nil, "verdict: valid\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := inspectInput(t, tc.input, tc.args...)
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if err != nil {
				out += err.Error()
			}
			if !strings.Contains(out, tc.say) {
				t.Errorf("%q is not in\n%s", tc.say, out)
			}
			if signature := token[strings.LastIndex(token, ".")+1:]; strings.Contains(out, signature) {
				t.Errorf("the signature is in\n%s", out)
			}
		})
	}
}

func TestInspectShowsTheSignatureIfAsked(t *testing.T) {
	t.Parallel()
	token := legacyToken(t)
	out, _ := inspectInput(t, token, "--show-signature")
	if !strings.Contains(out, token[strings.LastIndex(token, ".")+1:]) {
		t.Errorf("no signature in\n%s", out)
	}
}

// TestTokensAreNoArguments, and are not repeated in the refusal.
func TestTokensAreNoArguments(t *testing.T) {
	t.Parallel()
	token := legacyToken(t)
	for name, args := range map[string][]string{
		"inspect": {"tokens", "inspect", token}, "parent": {"tokens", token}, "header": {"tokens", "inspect", "Bearer", token},
		"quoted header": {"tokens", "inspect", "Bearer " + token}, "cut off": {"tokens", "inspect", token[:50]},
		"damaged": {"tokens", "inspect", "x" + token}, "too long": {"tokens", "inspect", strings.Repeat("x", 5000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := command(t, args...)
			if got.code != 1 || got.stdout != "" || !strings.HasPrefix(got.stderr, "Error: this looks like a token as an argument, where everybody on the machine can read it") {
				t.Errorf("%+v", got)
			}
			if strings.Contains(got.stderr, token[20:40]) || strings.Contains(got.stderr, "xxxx") {
				t.Errorf("the token is repeated: %s", got.stderr)
			}
		})
	}
}

func jwksOf(t *testing.T, keys ...[]byte) []byte {
	t.Helper()
	var public []signing.PublicKey
	for _, data := range keys {
		key, err := signing.ParsePrivateKey(data)
		if err != nil {
			t.Fatal(err)
		}
		public = append(public, key.Public())
	}
	document, err := signing.MarshalJWKS(public)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func TestJWKS(t *testing.T) {
	t.Parallel()
	active, retired := writeFile(t, "sa.key", testkeys.P256()), writeFile(t, "old.pem", testkeys.P384())
	ring := []string{"keys", "jwks", "--service-account-private-key-file=" + active, "--service-account-key-file=" + retired}
	both := string(jwksOf(t, testkeys.P256(), testkeys.P384())) + "\n"
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
		"same":          {[]string{"--check=" + writeFile(t, "keys.json", jwksOf(t, testkeys.P384(), testkeys.P256()))}, 0, "KEY-ID...", ""},
		"drift":         {[]string{"--check=" + writeFile(t, "keys.json", jwksOf(t, testkeys.P256(), testkeys.P521())), "-o=yaml"}, 2, "keys:\n...", "What is published is not what the keys are.\n"},
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
	if got := command(t, "keys", "jwks"); got.code != 1 || got.stderr != "Error: want keys: give --service-account-keys-dir, --service-account-private-key-file or --service-account-key-file\n" {
		t.Errorf("without keys: %+v", got)
	}
}

// TestKeysOfADirectory have the states that they have there.
func TestKeysOfADirectory(t *testing.T) {
	t.Parallel()
	dir := "--service-account-keys-dir=" + filepath.Join(t.TempDir(), "keys")
	old := "--service-account-key-file=" + writeFile(t, "old.pem", testkeys.P384())
	steps := [][]string{
		{"keys", "init", dir, "--from-private-key-file=" + writeFile(t, "sa.key", testkeys.P256())}, {"keys", "rotate", "start", dir},
	}
	for _, args := range steps {
		if got := command(t, args...); got.code != 0 {
			t.Fatalf("%q: %+v", args, got)
		}
	}
	got := command(t, "keys", "jwks", dir, old, "--check="+writeFile(t, "keys.json", jwksOf(t, testkeys.P256())))
	lines := strings.Split(got.stdout, "\n")
	if got.code != 2 || len(lines) != 5 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []string{"active    same", "next      missing", "retired   missing"} {
		if !strings.Contains(lines[i+1], want) {
			t.Errorf("line %q, want %q", lines[i+1], want)
		}
	}
	out, err := inspectInput(t, legacyToken(t), dir)
	if err != nil || !strings.Contains(out, "(ES256), active, of --service-account-keys-dir") {
		t.Errorf("%v:\n%s", err, out)
	}
}
