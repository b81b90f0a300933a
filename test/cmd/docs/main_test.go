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

		"chart ../../../manifests/chart": "manifests/chart/README.md",
	} {
		var got strings.Builder
		testutil.Must(t, run(strings.Fields(what), &got))
		want, err := os.ReadFile("../../../" + path)
		testutil.Must(t, err)
		testutil.Check(t, path+"; 'make update' rewrites it", string(want), got.String())
	}
}

// TestBlocksAreMarked: each block of commands says behind "sh" how it was run, by a word of docs/README.md.
func TestBlocksAreMarked(t *testing.T) {
	t.Parallel()
	root := "../../.."
	index, err := os.ReadFile(filepath.Join(root, "docs", "README.md"))
	testutil.Must(t, err)
	_, section, _ := strings.Cut(string(index), "\n## How commands were tried\n")
	var marks []string
	for _, mark := range regexp.MustCompile("(?m)^- `(\\w+)`: ").FindAllStringSubmatch(section, -1) {
		marks = append(marks, mark[1])
	}
	if len(marks) == 0 {
		t.Fatal("docs/README.md has no marks")
	}
	// Also of a fence that says nothing, if a command is below it.
	commands := regexp.MustCompile("(?m)^ *```" +
		"(?:sh|bash|console|\\n *(?:sa-controller-manager|kubectl|kubeadm|docker|make|bin/\\S+) .*)\\b *(.*)$")
	blocks := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "manifests/*.md"} {
		pages, err := filepath.Glob(filepath.Join(root, pattern))
		testutil.Must(t, err)
		for _, page := range pages {
			text, err := os.ReadFile(page)
			testutil.Must(t, err)
			for _, fence := range commands.FindAllStringSubmatch(string(text), -1) {
				if blocks++; !slices.Contains(marks, fence[1]) {
					t.Errorf("%s: %q, want \"sh\" and one of %q", page, fence[0], marks)
				}
			}
		}
	}
	if blocks < 50 {
		t.Errorf("%d blocks were found, want all", blocks)
	}
}
