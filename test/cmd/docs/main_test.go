// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"sa-controller-manager/internal/testutil"
)

func TestFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	for what, path := range map[string]string{
		"flags":         "docs/flags.md",
		"roles":         "manifests/permissions/roles.yaml",
		"token-secrets": "manifests/permissions/token-secrets/roles.yaml",
		"options":       "manifests/permissions/options/roles.yaml",

		"chart ../../../manifests/chart": "manifests/chart/README.md",
	} {
		var got strings.Builder
		testutil.Must(t, run(strings.Fields(what), &got))
		want := testutil.Get(os.ReadFile("../../../" + path))(t)
		testutil.Check(t, path+"; 'make update' rewrites it", string(want), got.String())
	}
}

// TestBlocksAreMarked: each block of commands says behind "sh" how it was run, by a word of docs/README.md.
func TestBlocksAreMarked(t *testing.T) {
	t.Parallel()
	root := "../../.."
	index := testutil.Get(os.ReadFile(filepath.Join(root, "docs", "README.md")))(t)
	_, section, _ := strings.Cut(string(index), "\n## How commands were tried\n")
	var marks []string
	for _, mark := range regexp.MustCompile("(?m)^- `(\\w+)`: ").FindAllStringSubmatch(section, -1) {
		marks = append(marks, mark[1])
	}
	testutil.Require(t, len(marks) != 0, "docs/README.md has no marks")
	// Also of a fence that says nothing, if a command is below it.
	commands := regexp.MustCompile("(?m)^ *```" +
		"(?:sh|bash|console|\\n *(?:sa-controller-manager|kubectl|kubeadm|docker|make|bin/\\S+) .*)\\b *(.*)$")
	blocks := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "manifests/*.md"} {
		pages := testutil.Get(filepath.Glob(filepath.Join(root, pattern)))(t)
		for _, page := range pages {
			text := testutil.Get(os.ReadFile(page))(t)
			for _, fence := range commands.FindAllStringSubmatch(string(text), -1) {
				if blocks++; !slices.Contains(marks, fence[1]) {
					t.Errorf("%s: %q, want \"sh\" and one of %q", page, fence[0], marks)
				}
			}
		}
	}
	testutil.Expect(t, blocks >= 50, "%d blocks were found, want all", blocks)
}

const root = "../../.."

// TestReadmeIsRun: continuous integration runs each target of make that README.md marks as tested, in every change.
func TestReadmeIsRun(t *testing.T) {
	t.Parallel()
	read := func(name string) string { return string(testutil.Get(os.ReadFile(filepath.Join(root, name)))(t)) }
	stages := strings.FieldsFunc(read(".ci/run"), func(r rune) bool { return !strings.ContainsRune("-_", r) && !unicode.IsLetter(r) })
	targets := 0
	for _, block := range regexp.MustCompile("(?s)```sh test\n(.*?)```").FindAllStringSubmatch(read("README.md"), -1) {
		for _, target := range regexp.MustCompile(`(?m)^make (\S+)`).FindAllStringSubmatch(block[1], -1) {
			if targets++; !slices.Contains(stages, target[1]) {
				t.Errorf("README.md has \"make %s\", which .ci/run does not run", target[1])
			}
		}
	}
	if targets < 5 {
		t.Errorf("%d targets were found, want all", targets)
	}
}

// TestTourExists: each file that the tour of docs/architecture.md names is in its package.
func TestTourExists(t *testing.T) {
	t.Parallel()
	page := string(testutil.Get(os.ReadFile("../../../docs/architecture.md"))(t))
	files := 0
	for _, stop := range regexp.MustCompile(`(?m)^\| \d+ \| \[.*?\]\(\.\.(/.*?)\) \| (.*?) \|`).FindAllStringSubmatch(page, -1) {
		for _, file := range regexp.MustCompile("`(.*?)`").FindAllStringSubmatch(stop[2], -1) {
			files++
			if _, err := os.Stat(filepath.Join(root, stop[1], file[1])); err != nil {
				t.Error(err)
			}
		}
	}
	if files < 30 {
		t.Errorf("%d files were found, want all", files)
	}
}
