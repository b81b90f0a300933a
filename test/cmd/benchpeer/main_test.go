// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"sa-controller-manager/internal/testutil"
)

// TestPage: no number in the tables and charts of the page was typed by hand, and all of them can be filled.
func TestPage(t *testing.T) {
	t.Parallel()
	const docs = "../../../docs/"
	want, err := os.ReadFile(docs + "benchmarks.md")
	testutil.Must(t, err)
	dir := t.TempDir()
	page := filepath.Join(dir, "benchmarks.md")
	testutil.Must(t, os.Mkdir(filepath.Join(dir, "benchmarks"), 0o700))
	testutil.Must(t, os.WriteFile(page, want, 0o600))
	testutil.Must(t, fill(page, []string{docs + "benchmarks/peer.json", docs + "benchmarks/scale.json"}))
	got, err := os.ReadFile(page)
	testutil.Must(t, err)
	testutil.Check(t, "docs/benchmarks.md", string(want), string(got))
	for _, chart := range []string{"speed", "memory", "webhook"} {
		name := "benchmarks/" + chart + ".svg"
		want, err := os.ReadFile(docs + name)
		testutil.Must(t, err)
		got, err := os.ReadFile(filepath.Join(dir, name))
		testutil.Must(t, err)
		testutil.Check(t, name, string(want), string(got))
	}
}
