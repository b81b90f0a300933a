// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
)

func TestFlagsDocIsUpToDate(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, NewCommand(), "flags").Stdout
	want, err := os.ReadFile("../../../../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/flags.md; 'make update-flags' rewrites it (-want +got):\n%s", diff)
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
