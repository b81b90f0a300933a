// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

func TestFlagsDocIsUpToDate(t *testing.T) {
	t.Parallel()
	const path = "../../../docs/flags.md"
	got := command(t, "docs", "flags").stdout
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/flags.md; 'go test ./cmd/sa-controller-manager/app -update' rewrites it (-want +got):\n%s", diff)
	}
}

func TestFlagRow(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		define func(*pflag.FlagSet)
		want   string
	}{
		"Plain": {
			define: func(fs *pflag.FlagSet) { fs.Int("x", 3, "How many.") },
			want:   "| `--x` int | `3` | How many. | ours |\n",
		},
		"ShorthandAndPlaceholder": {
			define: func(fs *pflag.FlagSet) { fs.StringP("x", "y", "", "Path of the `file` to read.") },
			want:   "| `-y`, `--x` file |  | Path of the file to read. | ours |\n",
		},
		"List": {
			define: func(fs *pflag.FlagSet) { fs.StringSlice("x", []string{"a", "b"}, "names") },
			want:   "| `--x` strings | `a,b` | Names. | ours |\n",
		},
		"Markdown": {
			reason: "plain text stays plain",
			define: func(fs *pflag.FlagSet) { fs.Bool("x", false, "a|b <c> *d*\ne") },
			want:   `| ` + "`--x` | `false`" + ` | A\|b &lt;c> \*d\* e. | ours |` + "\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			tc.define(fs)
			options.SetOrigin(fs, "ours", "x")
			if diff := cmp.Diff(tc.want, flagRow(fs.Lookup("x"))); diff != "" {
				t.Errorf("%s\nrow (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Flags are printed in the order of their names, so nobody knows which one is above.
func TestUsagesNameOtherFlags(t *testing.T) {
	t.Parallel()
	place := regexp.MustCompile(`flags? (above|below)`)
	seen := 0
	for _, cmd := range allCommands(newCommand(nil, io.Discard, io.Discard)) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			seen++
			if place.MatchString(f.Usage) {
				t.Errorf("%s --%s: %q", cmd.CommandPath(), f.Name, f.Usage)
			}
		})
	}
	if seen < 100 {
		t.Errorf("only %d flags were looked at", seen)
	}
}

// A script goes by the exit code 2, so it must be said which commands have it.
func TestFlagsDocHasTheCommandsWithFindings(t *testing.T) {
	t.Parallel()
	_, row, _ := strings.Cut(flagsDocSections, "\n| 2 | ")
	row, _, _ = strings.Cut(row, "\n")
	seen := 0
	for _, cmd := range allCommands(newCommand(nil, io.Discard, io.Discard)) {
		_, codes, found := strings.Cut(cmd.Long, "Exit code")
		if !found || !strings.Contains(codes, "2") {
			continue
		}
		seen++
		if path := strings.TrimPrefix(cmd.CommandPath(), options.ProgramName+" "); !strings.Contains(row, "`"+path) {
			t.Errorf("%s ends with 2 when it has found something, and is not in %q", path, row)
		}
	}
	if seen != 7 { // keys says it for its sub-commands
		t.Errorf("%d helps have the exit code 2, want 7", seen)
	}
}

// allCommands are cmd and all below it.
func allCommands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, allCommands(sub)...)
	}
	return all
}
