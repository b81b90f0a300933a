// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/internal/testutil"
)

// TestRun has checks that hang and fail beside one that works.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := func(_ *cluster, ctx context.Context) (check.Result, error) {
			<-ctx.Done()
			return check.Result{}, ctx.Err()
		}
		checks := []step{
			{Name: "hangs", About: "stays", run: hangs},
			{Name: "both", run: func(*cluster, context.Context) (check.Result, error) {
				return check.Result{Findings: []check.Finding{{Code: "c", Message: "p", Remedy: "m", Objects: []string{"a", "b", "c", "d",
					"e", "f", "g"}}}}, errors.New("down")
			}},
			{Name: "works", run: func(*cluster, context.Context) (check.Result, error) { return check.Result{Note: "seen"}, nil }},
			{Name: "idle", run: func(*cluster, context.Context) (check.Result, error) { return check.Skip("no Secrets"), nil }},
			{Name: "slow", run: hangs},
			{Name: "last", run: hangs},
		}
		var shown []string
		report := newReport(run(t.Context(), &cluster{}, checks, time.Second, func(line string) { shown = append(shown, line) }))
		progress := []string{"hangs: stays ...", "both:  ...", "works:  ...", "idle:  ...", "slow:  ...", "last:  ..."}
		testutil.Check(t, "progress", progress, shown)
		const want = `CHECK   RESULT     DETAIL
hangs   unknown    no answer within 1s: context deadline exceeded
both    findings   down
works   ok         seen
idle    skipped    no Secrets
slow    unknown    no answer within 1s: context deadline exceeded
last    unknown    not made, because 2 others have had no answer in time

1. both: p
   where:  a, b, c, d, e and 2 more (-o json has them)
   remedy: m
`
		testutil.Check(t, "table", want, printed(t, report, "table"))
	})
}

// TestTerminal: lines fit and the words that need the user are marked; nothing else is.
func TestTerminal(t *testing.T) {
	t.Parallel()
	report := newReport([]result{
		newResult("token", check.Result{Note: "seen"}, nil),
		newResult("webhook", check.Result{Findings: []check.Finding{
			{Code: "c", Message: "a message that goes on and on", Remedy: "do this, that, and that too", Objects: []string{"a/b", "c/d"}},
		}}, errors.New("no answer within one second\nof waiting")),
		newResult("keys", check.Result{}, errors.New("down")),
		newResult("roots", check.Skip("no Pods"), nil),
	})
	const want = `CHECK     RESULT     DETAIL
token     ok         seen
webhook   RED(findings)   no answer within
                     one second of
                     waiting
keys      BOLD(unknown)    down
roots     skipped    no Pods

1. webhook: a message that goes on and
   on
   where:  a/b, c/d
   remedy: do this, that, and that too
`
	marked := strings.NewReplacer("RED(", "\x1b[31m", "BOLD(", "\x1b[1m", ")", "\x1b[0m").Replace(want)
	testutil.Check(t, "40 columns", marked, report.table(40))
	testutil.Check(t, "a wide terminal", report.table(widest), report.table(300))
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	report := newReport([]result{
		newResult("a", check.Result{Note: "n"}, nil),
		newResult("b", check.Result{Findings: []check.Finding{{Code: "c", Message: "p", Remedy: "m", Objects: []string{"o"}}}}, nil),
		newResult("c", check.Result{}, errors.New("down")),
		newResult("d", check.Skip("why"), nil),
	})
	for _, output := range []string{"json", "yaml"} {
		clitest.Golden(t, "report."+output, printed(t, report, output))
	}
	clitest.Golden(t, "nothing.json", printed(t, newReport([]result{}), "json"))
}

func printed(t *testing.T, report *report, output string) string {
	t.Helper()
	var out bytes.Buffer
	testutil.Must(t, printers.Document(&out, output, report, func() string { return report.table(0) }))
	return out.String()
}

// TestWords: programs compare them, so docs/cli.md has each.
func TestWords(t *testing.T) {
	t.Parallel()
	for want, result := range map[string]result{
		"ok":       newResult("a", check.Result{}, nil),
		"findings": newResult("a", check.Result{Findings: []check.Finding{{}}}, errors.New("down")),
		"unknown":  newResult("a", check.Skip("no Secrets"), errors.New("down")), "skipped": newResult("a", check.Skip("no Secrets"), nil),
	} {
		testutil.Check(t, "word", want, result.Word)
	}
	row := "| `DoctorReport` `checks[].result` | `ok`, `findings`, `skipped`, `unknown` |"
	testutil.Expect(t, strings.Contains(contract(), row), "docs/cli.md lacks %s", row)
}

func TestDoctorCommandLine(t *testing.T) {
	t.Parallel()
	bad := testutil.WriteFile(t, "bad.pem", []byte("CANARY"))
	clitest.Refuses(t, func() *cobra.Command { return NewCommand(cli.Connect) }, clitest.Refusals{
		"Only":    {[]string{"--only=token,x"}, "Error: --only \"x\" must be one of \"token\", "},
		"Skip":    {[]string{"--skip=x"}, "Error: --skip \"x\" must be one of \"token\", "},
		"Nothing": {[]string{"--only=token", "--skip=token"}, "Error: --skip \"token\" leaves no check of --only\n"},
		"Account": {
			[]string{"--account=default"}, "Error: --account \"default\" must be a namespace and a name, such as kube-system/default\n",
		},
		"PrivateKey": {
			[]string{"--service-account-private-key-file=" + bad}, "Error: --service-account-private-key-file: " + bad +
				": found no PEM block",
		},
		"Lease":  {[]string{"--leader-elect-resource-name=A_"}, "Error: --leader-elect-resource-name \"A_\" must be the name of a Lease"},
		"Nobody": {[]string{"--master=http://127.0.0.1:1"}, "Error: ask kube-apiserver for its version: "},
	})
}

// TestMissingPath: a mistyped path must not pass for a healthy cluster.
func TestMissingPath(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	for name, flags := range map[string][]string{
		"kubeconfig": nil, "root-ca-file": nil,
		"service-account-key-file": nil, "service-account-key-ring": nil, "service-account-private-key-file": nil,
	} {
		t.Run(name, func(t *testing.T) {
			got := clitest.Run(t, NewCommand(cli.Connect), append(flags, "--"+name+"="+none)...)
			if got.Code != 1 || got.Stdout != "" || !strings.HasPrefix(got.Stderr, "Error: --"+name) ||
				!strings.Contains(got.Stderr, none+": no such file or directory") {
				t.Errorf("%+v, want code 1 and the flag with %s", got, none)
			}
		})
	}
}

func TestDoctorOutcome(t *testing.T) {
	t.Parallel()
	fine := newResult("fine", check.Result{}, nil)
	ill := newResult("ill", check.Result{Findings: []check.Finding{{}, {}}}, nil)
	silent := newResult("silent", check.Result{}, errors.New("down"))
	idle := newResult("idle", check.Skip("no Secrets"), nil)
	for name, tc := range map[string]struct {
		results []result
		wantErr error
		want    string
	}{
		"Nothing": {[]result{fine}, nil, "Findings: 0. Checks completed: 1, skipped: 0.\n"},
		"Skipped": {[]result{idle, fine, idle}, nil, "Findings: 0. Checks completed: 1, skipped: 2.\n"},
		"Found":   {[]result{fine, ill}, cli.ErrFindings, "Findings: 2. Checks completed: 2, skipped: 0.\n"},
		"Unknown": {[]result{silent, fine}, cli.ErrReported, "Findings: 0. Checks completed: 1, skipped: 0, not completed: silent.\n"},
		"Both":    {[]result{silent, ill}, cli.ErrFindings, "Findings: 2. Checks completed: 1, skipped: 0, not completed: silent.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if err := newReport(tc.results).outcome(&stderr); !errors.Is(err, tc.wantErr) || stderr.String() != tc.want {
				t.Errorf("%v and %q, want %v and %q", err, stderr.String(), tc.wantErr, tc.want)
			}
		})
	}
}
