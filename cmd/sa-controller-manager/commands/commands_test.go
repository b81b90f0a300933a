// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

// command runs args; run must not be reached.
func command(t *testing.T, args ...string) clitest.Outcome {
	t.Helper()
	return commandWith(t.Context(), func(context.Context, *options.Options) error {
		t.Errorf("%q started the manager", args)
		return nil
	}, args...)
}

func commandWith(ctx context.Context, run runFunc, args ...string) clitest.Outcome {
	var stdout, stderr bytes.Buffer
	code := execute(ctx, run, args, &stdout, &stderr)
	return clitest.Outcome{Code: code, Stdout: stdout.String(), Stderr: stderr.String()}
}

const seeHelp = "See 'sa-controller-manager --help' for usage.\n"

func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, want string
		args         []string
	}{
		"MistypedFlag":   {args: []string{"--kubeconfg=x"}, want: "Error: unknown flag: --kubeconfg\n" + seeHelp},
		"UnknownCommand": {args: []string{"foo", "bar"}, want: "Error: unknown command \"foo\" for \"sa-controller-manager\"\n" + seeHelp},
		"MistypedCommand": {
			args: []string{"verison"},
			want: "Error: unknown command \"verison\" for \"sa-controller-manager\"; did you mean 'sa-controller-manager version'?\n" +
				seeHelp,
		},
		"SubcommandOfKeys": {
			args: []string{"rotate"},
			want: "Error: unknown command \"rotate\" for \"sa-controller-manager\"; did you mean 'sa-controller-manager keys'?\n" + seeHelp,
		},
		"MistypedSubcommand": {
			args: []string{"webhook", "registre"}, want: "Error: unknown command \"registre\" for \"sa-controller-manager webhook\"; " +
				"did you mean 'sa-controller-manager webhook register'?\n" +
				"See 'sa-controller-manager webhook --help' for usage.\n",
		},
		"Argument": {
			reason: "the words are KCM's", args: []string{"version", "foo"},
			want: "Error: \"sa-controller-manager version\" does not take any arguments, got [\"foo\"]\n" +
				"See 'sa-controller-manager version --help' for usage.\n",
		},
		"TwoProblems": {
			args: []string{"--secure-port=-1", "--token-secrets=maybe"}, want: "Error: 2 problems with the flags:\n" +
				"  --token-secrets \"maybe\" must be one of \"auto\", \"manual\"\n" +
				"  --secure-port -1 must be between 0 and 65535, inclusive. 0 for turning off secure port\n" + seeHelp,
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := clitest.Outcome{Code: 1, Stderr: tc.want}
			testutil.Check(t, tc.reason+"\noutcome", want, command(t, tc.args...))
		})
	}
}

// Whatever is said of an argument that holds a key would repeat the key.
func TestCommandRefusesContents(t *testing.T) {
	t.Parallel()
	key := string(testkeys.P256())
	encoded := base64.StdEncoding.EncodeToString([]byte(key))
	bare := key[strings.LastIndex(key, "-----BEGIN")+len("-----BEGIN"):] // what is cut out of it
	const token = "c2VjcmV0c2VjcmV0"
	config := "users:\n- user:\n    client-key-data: " + encoded + "\n"
	const (
		flag    = "--service-account-private-key-file"
		content = " has the content of a PEM file or of a kubeconfig in it and must have the path of the file"
		lines   = " has several lines and must have one, a path if a file is meant"
	)
	for name, tc := range map[string]struct {
		reason, want string
		args         []string
	}{
		"Value":       {args: []string{flag + "=" + key}, want: flag + content},
		"Argument":    {args: []string{flag, key}, want: flag + content},
		"Unquoted":    {reason: "the shell cuts it at each blank", args: strings.Fields(flag + "=" + key), want: flag + content},
		"NoFlag":      {args: []string{key}, want: "an argument" + content},
		"OfCommand":   {args: []string{"keys", "init", "--from-private-key-file=" + key}, want: "--from-private-key-file" + content},
		"Underscores": {args: []string{"--service_account_private_key_file=" + key}, want: flag + content},
		"UnknownFlag": {
			reason: "what is no flag's name may be anything", args: []string{"--v=2", "--secret=" + key}, want: "an argument" + content,
		},
		"NoEquals":         {args: []string{flag + key}, want: flag + content},
		"NoEqualsUnquoted": {args: strings.Fields(flag + key), want: flag + content},
		"NoEqualsEncoded":  {reason: "letters only, up to its padding", args: []string{flag + encoded}, want: flag + content},
		"NoEqualsBare":     {args: []string{flag + bare}, want: flag + lines},
		"Encoded":          {args: []string{flag, encoded}, want: flag + content},
		"EncodedLater1":    {args: []string{flag, base64.StdEncoding.EncodeToString([]byte("\n" + key))}, want: flag + content},
		"EncodedLater2":    {args: []string{flag, base64.StdEncoding.EncodeToString([]byte("\n\n" + key))}, want: flag + content},
		"Bare":             {args: []string{flag + "=" + bare}, want: flag + lines},
		"BareNoFlag":       {args: []string{bare}, want: "an argument" + lines},
		"Kubeconfig":       {args: []string{"--kubeconfig=" + config}, want: "--kubeconfig" + content},
		"KubeconfigUnquoted": {
			reason: "no other word of it may be said either: it may have a token",
			args:   strings.Fields("--kubeconfig=apiVersion: v1 users: - user: token: " + token), want: "--kubeconfig" + content,
		},
		"KubeconfigJSON": {
			args: []string{`--kubeconfig={"apiVersion":"v1","users":[{"user":{"token":"` + token + `"}}]}`}, want: "--kubeconfig" + content,
		},
		"KubeconfigOfToken": {
			args: []string{"doctor", "--kubeconfig", "users:\n- user:\n    token: " + token}, want: "--kubeconfig" + lines,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := command(t, tc.args...)
			want := clitest.Outcome{Code: 1, Stderr: "Error: " + tc.want + "; other users of this machine may have seen what was given\n" +
				seeHelp}
			testutil.Check(t, tc.reason+"\noutcome", want, got)
		})
	}
}

// Setting up logging changes the process, so this test and its cases have it to
// themselves: they run before the parallel ones.
func TestCommandRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, wantLog string
		args            []string
		fails           error
		wantCode        int
	}{
		"Flags":       {args: []string{"--token-secrets=manual"}},
		"EmptyString": {reason: "an unset variable in a manifest is no argument", args: []string{"", "--token-secrets=manual"}},
		"Underscores": {reason: "every Kubernetes component takes them", args: []string{"--token_secrets=manual"}},
		"IgnoredFlags": {
			reason: "kube-controller-manager's manifest can be used as it is",
			args:   []string{"--cluster-signing-cert-file=/nowhere", "--allocate-node-cidrs", "--token-secrets=manual"},
		},
		"Fails": {
			reason: "the log has it, so stderr must not have it again", args: []string{"--token-secrets=manual"}, fails: errors.New("boom"),
			wantCode: 1, wantLog: `"msg"="Command failed" "error"="boom"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { testutil.Must(t, logsapi.ResetForTest(nil)) })
			var log []string
			logger := funcr.New(func(_, line string) {
				if strings.Contains(line, `"error"`) {
					log = append(log, line)
				}
			}, funcr.Options{})
			var mode options.TokenSecretsMode
			got := commandWith(klog.NewContext(t.Context(), logger), func(_ context.Context, o *options.Options) error {
				mode = o.Tokens.TokenSecrets
				return tc.fails
			}, tc.args...)

			testutil.Check(t, tc.reason+"\noutcome", clitest.Outcome{Code: tc.wantCode}, got)
			testutil.Expect(t, mode == options.TokenSecretsManual, "%s\nthe manager got --token-secrets=%q, want manual", tc.reason, mode)
			testutil.Check(t, tc.reason+": log", tc.wantLog, strings.Join(log, "\n"))
		})
	}
}

func TestCommandPrints(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"VersionFlag":       {[]string{"--version"}, "sa-controller-manager v"},
		"VersionBeforeAll":  {[]string{"--version", "--secure-port=-1"}, "sa-controller-manager v"},
		"Version":           {[]string{"version"}, "sa-controller-manager v"},
		"Help":              {[]string{"--help"}, "sa-controller-manager keeps the ServiceAccounts"},
		"HelpBeforeMistake": {[]string{"-h", "--secure-port=-1"}, "sa-controller-manager keeps the ServiceAccounts"},
		"Completion":        {[]string{"completion", "bash"}, "# bash completion V2 for sa-controller-manager"},
		"CompleteCommand":   {[]string{"__complete", "vers"}, "version\tPrint the version\n"},
		"CompleteChoice":    {[]string{"__complete", "--token-secrets", ""}, "auto\nmanual\n:4\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := command(t, tc.args...)
			testutil.Expect(t, got.Code == 0 && strings.HasPrefix(got.Stdout, tc.want),
				"exit code %d and %.100q, want 0 and %q at first; stderr: %q", got.Code, got.Stdout, tc.want, got.Stderr)
		})
	}
}

// The golden file has no flags: docs/flags.md has them, and another test.
func TestHelp(t *testing.T) {
	t.Parallel()
	flagLines := regexp.MustCompile(`(?m)^(      --|  -[a-z],).*\n`)
	clitest.Golden(t, "help.txt", flagLines.ReplaceAllString(command(t, "--help").Stdout, ""))
}
