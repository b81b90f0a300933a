// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/bench/peer"
)

// TestPage: no number in the table of the page was typed by hand.
func TestPage(t *testing.T) {
	t.Parallel()
	const docs = "../../../docs/"
	want := testutil.Get(os.ReadFile(docs + "benchmarks.md"))(t)
	page := filepath.Join(t.TempDir(), "benchmarks.md")
	testutil.Must(t, os.WriteFile(page, want, 0o600))
	testutil.Must(t, peer.Fill(page, docs+"benchmarks/peer.json"))
	got, err := os.ReadFile(page)
	testutil.Must(t, err)
	testutil.Check(t, "docs/benchmarks.md", string(want), string(got))
}
