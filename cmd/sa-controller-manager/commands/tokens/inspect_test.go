// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

func noCluster(*options.Connection) (kubernetes.Interface, error) { return fake.NewClientset(), nil }

// inspectInput runs the command on standard input.
func inspectInput(t *testing.T, input string, args ...string) (stdout string, err error) {
	t.Helper()
	cmd := NewInspectCommand(noCluster)
	var out bytes.Buffer
	cmd.SetIn(strings.NewReader(input))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestInspectReads(t *testing.T) {
	t.Parallel()
	token, key := clitest.LegacyToken(t), "--service-account-key-file="+testutil.WriteFile(t, "key", testkeys.P256())
	for name, tc := range map[string]struct {
		input string
		args  []string
		want  error
		say   string
	}{
		"standard input": {token, []string{key}, nil, "Verdict:       valid"},
		"file":           {"", []string{key, testutil.WriteFile(t, "token", []byte(token+"\n"))}, nil, "Verdict:       valid"},
		"of a header":    {"Bearer " + token, []string{key}, nil, "Verdict:       valid"},
		"two tokens":     {token + "\n" + token, []string{key}, cli.ErrFindings, "malformed token"},
		"nothing":        {" \n", []string{key}, nil, "read the token from standard input: it is empty"},
		"of a Secret":    {base64.StdEncoding.EncodeToString([]byte(token)), []string{key}, nil, "pipe it through base64 -d"},
		"too much": {
			strings.Repeat("a", 128<<10+1), []string{key}, nil, "read the token from standard input: it is larger than 131072 bytes",
		},
		"other key": {
			token, []string{"--service-account-key-file=" + testutil.WriteFile(t, "key", testkeys.P384())}, cli.ErrFindings,
			"no key that was given has its key ID",
		},
		"no key":        {token, nil, nil, "Verdict:   unknown"},
		"no key, error": {token, nil, nil, "it is unknown whether the token is valid: there is no key to verify the signature with"},
		"JWKS": {
			token, []string{"--jwks=" + testutil.WriteFile(t, "keys.json", clitest.JWKS(t, testkeys.P256()))}, nil, "published, of --jwks=",
		},
		"active key": {
			token, []string{"--service-account-private-key-file=" + testutil.WriteFile(t, "key", testkeys.P256())}, nil,
			"(ES256), active, of --service-account-private-key-file",
		},
		"missing file":     {"", []string{"testdata/none"}, nil, "read the token: open testdata/none: no such file or directory"},
		"machine readable": {token, []string{key, "-o=json"}, nil, `"verdict": "valid"`},
		"no cluster":       {token, []string{key, "--context=typo"}, nil, `--context "typo" must be left out: this call asks no cluster`},
		"empty issuer":     {token, []string{"--service-account-issuer="}, nil, `--service-account-issuer "" must be an issuer`},
		"plain HTTP":       {"", []string{"--jwks=http://example.com?secret"}, nil, `--jwks "http://example.com" must be an https URL, a file or "cluster"`},
		"two files":        {"", []string{"a", "b"}, nil, "takes one file at most, got 2 arguments"},
		"unreadable CA": {
			token, []string{"--jwks=https://localhost", "--published-ca-file=" + testutil.WriteFile(t, "ca", nil)}, nil,
			"any valid RSA or ECDSA certificates",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := inspectInput(t, tc.input, tc.args...)
			testutil.Expect(t, tc.want == nil || errors.Is(err, tc.want), "error %v, want %v", err, tc.want)
			if err != nil {
				out += err.Error()
			}
			testutil.CheckContains(t, "printed", tc.say, out)
			testutil.Expect(t, !strings.Contains(out, token[strings.LastIndex(token, ".")+1:]), "the signature is in\n%s", out)
		})
	}
}
