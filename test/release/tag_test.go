// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release tests the script of make tag, in a repository of its own.
package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

func TestTag(t *testing.T) {
	t.Parallel()
	const images = "sed -i 's/:v1.2.3/:v0.0.0/' manifests/pod.yaml && git commit -qam images"
	for name, test := range map[string]struct {
		change  string // commands in a repository that is ready for v1.2.3
		version string // v1.2.3 unless given
		want    string // in what is printed
		tagged  bool
	}{
		"ready":                  {want: "tagged", tagged: true},
		"no chart":               {change: "git rm -qr manifests/chart && git commit -qm chart", want: "tagged", tagged: true},
		"no version":             {version: "1.2.3", want: "write it as in VERSION=v1.2.3"},
		"another branch":         {change: "git switch -qc fix", want: "this is fix, and releases are tagged on main: git switch main"},
		"changes":                {change: "touch new", want: "the tree has changes: commit them"},
		"tagged before":          {change: "git tag v1.2.3 HEAD~0", want: "the tag v1.2.3 exists: take the next version", tagged: true},
		"changelog without date": {change: "sed -i 's/ - .*//' CHANGELOG.md && git commit -qam date", want: `the heading "## [1.2.3] - 2`},
		"images":                 {change: images, want: "other images (image: sa-controller-manager:v0.0.0): git grep"},
		"chart": {
			change: "sed -i 's/1.2.3$/1.2.2/' manifests/chart/Chart.yaml && git commit -qam chart", want: `write "version: 1.2.3"`,
		},
		"the app of the chart": {
			change: "sed -i 's/v1.2.3/v1.2.2/' manifests/chart/Chart.yaml && git commit -qam chart", want: `write "appVersion: v1.2.3"`,
		},
		"a homepage that nobody can download from": {
			change: "sed -i s/git.invalid/example.com/ cmd/kubectl-sa_tokens/krew.yaml && git commit -qam krew",
			want:   "write the https address of the repository below which releases/download/v1.2.3/ will have the files of make release",
		},
		"all reasons are printed": {change: images + " && touch new && git switch -qc fix", want: "the tree has changes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			script, err := os.ReadFile("tag.sh")
			testutil.Must(t, err)
			for name, content := range map[string]string{
				"test/release/tag.sh":             string(script),
				"CHANGELOG.md":                    "## [Unreleased]\n\n## [1.2.3] - 2026-12-01\n",
				"manifests/pod.yaml":              "image: sa-controller-manager:v1.2.3\nimage: registry.k8s.io/kube-controller-manager:v1.36.3\n",
				"cmd/kubectl-sa_tokens/krew.yaml": "spec:\n  homepage: https://git.invalid/sa-controller-manager\n",
				"manifests/chart/Chart.yaml":      "version: 1.2.3\nappVersion: \"v1.2.3\"\n",
			} {
				testutil.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
				testutil.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700))
			}
			bash := func(commands string) (string, error) {
				shell := exec.CommandContext(t.Context(), "bash", "-euc", commands)
				shell.Dir = dir
				shell.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a",
					"GIT_COMMITTER_EMAIL=a@b")
				printed, err := shell.CombinedOutput()
				return string(printed), err
			}
			if printed, err := bash("git init -qb main && git add . && git commit -qm first\n" + test.change); err != nil {
				t.Fatal(printed)
			}
			if test.version == "" {
				test.version = "v1.2.3"
			}
			printed, failed := bash("test/release/tag.sh " + test.version)
			if !strings.Contains(printed, test.want) || (failed == nil) != strings.HasPrefix(printed, "tagged ") {
				t.Errorf("printed %q with the error %v, want %q", printed, failed, test.want)
			}
			tags, err := bash("git tag --list")
			testutil.Must(t, err)
			if (tags != "") != test.tagged {
				t.Errorf("the tags are %q", tags)
			}
		})
	}
}
