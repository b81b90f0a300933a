// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

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
			"it begins with what begins a flag", "revoke KEY-ID...", []string{"revoke", "-" + hyphen[:42]}, "-" + hyphen[:42] + " yes=false",
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
