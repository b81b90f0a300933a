// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/testutil"
)

func TestDoctorCommandLine(t *testing.T) {
	t.Parallel()
	bad := testutil.WriteFile(t, "bad.pem", []byte("CANARY"))
	clitest.Refuses(t, func() *cobra.Command { return NewCommand(cli.Connect) }, clitest.Refusals{
		"Only":    {[]string{"--only=token,x"}, "Error: --only \"x\" must be one of \"token\", "},
		"Skip":    {[]string{"--skip=x"}, "Error: --skip \"x\" must be one of \"token\", "},
		"Nothing": {[]string{"--only=token", "--skip=token"}, "Error: --skip \"token\" leaves no check of --only\n"},
		"Account": {[]string{"--account=default"}, "Error: --account \"default\" must be a namespace and a name, such as kube-system/default\n"},
		"PrivateKey": {
			[]string{"--service-account-private-key-file=" + bad}, "Error: --service-account-private-key-file: " + bad + ": found no PEM block",
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
