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

	"sa-controller-manager/internal/testutil"
)

func TestFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	for what, path := range map[string]string{
		"flags":         "docs/flags.md",
		"roles":         "manifests/permissions/roles.yaml",
		"token-secrets": "manifests/permissions/token-secrets/roles.yaml",
		"options":       "manifests/permissions/options/roles.yaml",
	} {
		var got strings.Builder
		testutil.Must(t, run([]string{what}, &got))
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
