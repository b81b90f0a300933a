// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/testutil"
)

func TestCommonFirst(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	root := &cobra.Command{Use: "program", Run: func(*cobra.Command, []string) {}}
	SetUpRoot(root, &out, &out)
	for _, name := range []string{"account", "kubeconfig", "timeout"} {
		root.Flags().String(name, "", "Says which.")
	}
	Execute(t.Context(), root, []string{"--help"}, &out)
	testutil.Check(t, "help", `Usage:
  program [flags]

Flags:
  -h, --help                help for program
      --kubeconfig string   Says which.

Flags that few users need:
      --account string   Says which.
      --timeout string   Says which.
`, out.String())
}

func TestKeyIDWithAHyphen(t *testing.T) {
	t.Parallel()
	const hyphen, other = "-XFVTRv0TPqYY9xQcXtj79ZVsP1802tk0QmZRrpn6pA", "32BLaqOWTRv0TPqYY9xQcXtj79ZVsP1802tk0QmZRrp"
	for name, tc := range map[string]struct {
		reason, use string
		args        []string
		want        string
	}{
		"First": {"flags may follow", "revoke KEY-ID...", []string{"revoke", hyphen, other, "--yes"}, other + " " + hyphen + " yes=true"},
		"Last":  {"flags may come before", "revoke KEY-ID...", []string{"revoke", "--yes", hyphen}, hyphen + " yes=true"},
		"Two": {
			"it begins with what begins a flag", "revoke KEY-ID...", []string{"revoke", "-" + hyphen[:42]}, "-" + hyphen[:42] +
				" yes=false",
		},
		"Separated": {"the user did it", "revoke KEY-ID...", []string{"revoke", "--yes", "--", hyphen}, hyphen + " yes=true"},
		"Flag": {
			"a wrong flag is an error", "revoke KEY-ID...", []string{"revoke", "-X"},
			"Error: unknown shorthand flag: 'X' in -X\nSee 'program revoke --help' for usage.\n",
		},
		"NoValue": {
			"no -- is taken for the value of a flag", "revoke KEY-ID...", []string{"revoke", other, "--ring"},
			"Error: flag needs an argument: --ring\nSee 'program revoke --help' for usage.\n",
		},
		"NoKeyID": {"the command takes none", "revoke", []string{"revoke", "--ring", hyphen}, " yes=false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			root := &cobra.Command{Use: "program"}
			SetUpRoot(root, &out, &out)
			cmd := &cobra.Command{Use: tc.use, Run: func(cmd *cobra.Command, args []string) {
				cmd.Printf("%s yes=%s", strings.Join(args, " "), cmd.Flag("yes").Value)
			}}
			cmd.Flags().Bool("yes", false, "Says yes.")
			cmd.Flags().String("ring", "", "Says which.")
			root.AddCommand(cmd)
			Execute(t.Context(), root, tc.args, &out)
			testutil.Check(t, tc.reason, tc.want, out.String())
		})
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	const flag = "      --flag duration   The greatest of --all-the-values-of-it, or none (default 1h)\n"
	for name, tc := range map[string]struct {
		reason, help string
		columns      int
		want         string
	}{
		"NoTerminal": {"a file has lines of any length", flag, 0, flag},
		"Wide":       {"it fits", flag, 90, flag},
		"Flag": {"the text goes on below itself", flag, 60,
			"      --flag duration   The greatest of\n" +
				"                        --all-the-values-of-it, or none\n" +
				"                        (default 1h)\n"},
		"Aligned": {"the text has less than half of the columns", flag, 47,
			"      --flag duration   The greatest of\n" +
				"                        --all-the-values-of-it,\n" +
				"                        or none (default 1h)\n"},
		"Narrow": {"half of the columns are for the text", flag, 40,
			"      --flag duration   The greatest of\n" +
				"                    --all-the-values-of-it,\n" +
				"                    or none (default 1h)\n"},
		"Prose": {"a paragraph is filled, and a heading is none of it",
			"It is refused while\nanother host has one.\n\nUsage:\n  program [flags]\n", 30,
			"It is refused while another\nhost has one.\n\nUsage:\n  program [flags]\n"},
		"Command": {"a command is copied from a terminal, which wraps it without a line break",
			"  program rotate --ring=ring.json --wait\n", 30, "  program rotate --ring=ring.json --wait\n"},
		"LongWord": {"a word stays whole", "of --all-the-values-of-it or\nnone\n", 10, "of\n--all-the-values-of-it\nor none\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testutil.Check(t, tc.reason, tc.want, wrap(tc.help, tc.columns))
		})
	}
}

func TestFind(t *testing.T) {
	const none = "none"
	for name, tc := range map[string]struct {
		given                       options.Connection
		inPod                       bool
		env                         string
		home, admin                 string // missing, unless given
		wantFile, wantList, wantErr string
	}{
		"Flag":            {given: options.Connection{Kubeconfig: "flag"}, inPod: true, env: "env", home: "home", wantFile: "flag"},
		"Pod":             {inPod: true, env: "env", home: "home", admin: "admin"},
		"ContextInAPod":   {given: options.Connection{Context: "c"}, inPod: true, env: "env", wantList: "env"},
		"Environment":     {env: "env:more", home: "home", admin: "admin", wantList: "env:more"},
		"Home":            {home: "home", admin: "admin", wantList: "home"},
		"Node":            {admin: "admin", wantFile: "admin"},
		"Address":         {given: options.Connection{Master: "https://a"}},
		"UserForAddress":  {given: options.Connection{Master: "https://a"}, inPod: true, home: "home", wantList: "home"},
		"EnvironmentGone": {env: "gone", home: "home", wantErr: "KUBECONFIG="},
		"Nothing":         {wantErr: "no cluster is named: give --kubeconfig or set KUBECONFIG; there is neither "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := func(name string) string {
				if name == "" {
					return filepath.Join(dir, none)
				}
				testutil.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
				return filepath.Join(dir, name)
			}
			var listed []string
			for name := range strings.SplitSeq(tc.env, ":") {
				listed = append(listed, path(name))
			}
			if tc.env != "" {
				tc.env = strings.Join(listed, ":")
			}
			t.Setenv("KUBECONFIG", strings.Replace(tc.env, "gone", "none", 1))
			err := find(&tc.given, tc.inPod, path(tc.home), path(tc.admin))
			testutil.Expect(t, (err == nil) == (tc.wantErr == "") && (strings.HasPrefix(fmt.Sprint(err), tc.wantErr) || err == nil),
				"error %v, want %q", err, tc.wantErr)
			list := strings.ReplaceAll(strings.Join(tc.given.Found, ":"), dir+"/", "")
			if file := strings.TrimPrefix(tc.given.Kubeconfig, dir+"/"); file != tc.wantFile || list != tc.wantList {
				t.Errorf("file %q and list %q, want %q and %q", file, list, tc.wantFile, tc.wantList)
			}
		})
	}
}

// TestConnectFollowsEnvironment: files are merged, as by kubectl, and errors name them.
func TestConnectFollowsEnvironment(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	current := testutil.WriteFile(t, "current", []byte("apiVersion: v1\nkind: Config\ncurrent-context: demo\n"))
	rest := testutil.WriteFile(t, "rest", []byte(`apiVersion: v1
kind: Config
clusters: [{name: demo, cluster: {server: "https://apiserver.example.com:6443"}}]
contexts: [{name: demo, context: {cluster: demo}}]
`))
	for _, tc := range []struct{ env, want string }{
		{current + ":" + rest, "demo https://apiserver.example.com:6443"},
		{rest, `kubeconfig "` + rest + `": it must have a current-context`},
	} {
		t.Setenv("KUBECONFIG", tc.env)
		o := options.NewConnection()
		_, err := Connect(&o)
		got := o.Cluster + fmt.Sprint(err)
		testutil.Expect(t, strings.HasPrefix(got, tc.want), "KUBECONFIG=%s: %s, want %q", tc.env, got, tc.want)
	}
}

func TestClusterFlags(t *testing.T) {
	t.Parallel()
	for kubeconfig, want := range map[string]string{
		"": "", "/etc/admin.conf": " --kubeconfig=/etc/admin.conf", "it's mine": ` --kubeconfig='it'\''s mine'`,
	} {
		testutil.Check(t, kubeconfig, want+" --master=https://a:6443 --context=b@c",
			ClusterFlags(options.Connection{Kubeconfig: kubeconfig, Master: "https://a:6443", Context: "b@c"}))
	}
}

func TestInvalidFlags(t *testing.T) {
	t.Parallel()
	one, other := errors.New("--a b"), errors.New("--c d")
	for want, problems := range map[string][]error{
		"<nil>": nil, "--a b": {one}, "2 problems with the flags:\n  --a b\n  --c d": {one, other},
	} {
		testutil.Check(t, "error", want, fmt.Sprint(InvalidFlags("cmd", problems)))
	}
}

func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	tell := (&Progress{w: &b, terminal: true}).Waiting()
	tell("the cache age", 90*time.Second)
	tell("the cache age", 85*time.Second)
	tell("kube-apiserver", 0)
	const line = "\r\x1b[K"
	const want = "Waiting: the cache age\n" + line + "1m30s left " + line + line + "1m25s left " + line + "Waiting: kube-apiserver\n"
	testutil.Check(t, "printed", want, b.String())
}

// TestProgressWithoutATerminal: a log shows that a long step goes on, and little else.
func TestProgressWithoutATerminal(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		var b strings.Builder
		p := NewProgress(&b)
		for second := range 25 {
			p.Show(fmt.Sprintf("%ds: not ready", second))
			time.Sleep(time.Second)
		}
		fmt.Fprintln(p.Above(&b), "done")
		p.End()
		const want = "10s: not ready\n20s: not ready\ndone\n"
		testutil.Check(t, "printed", want, b.String())
	})
}
