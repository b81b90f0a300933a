// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
	"sa-controller-manager/internal/testutil"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{
		GoVersion: "go1.26.1",
		Main:      debug.Module{Path: "example", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "github.com/Upper/case", Version: "v1.2.0+incompatible", Sum: "h1:MEAQw9ZcWXjBkVW3KZZ/o8A9JfQkFV+q0RsHpTMPfXc="},
			{Path: "old", Version: "v1.0.0", Replace: &debug.Module{Path: "new", Version: "v2.0.0"}},
			{Path: "nearby", Replace: &debug.Module{Path: "../nearby"}},
		},
	}
	described := describe(info, subject{file: "example-linux", version: "v0.1.0", sha256: "ab", created: time.Unix(0, 0)})
	var locators []string
	for _, part := range described.Packages {
		locators = append(locators, part.PackageExternalReferences[0].Locator)
	}
	want := []string{
		"pkg:golang/example@v0.1.0", "pkg:golang/stdlib@1.26.1", "pkg:golang/github.com/upper/case@v1.2.0%2Bincompatible",
		"pkg:golang/new@v2.0.0", "pkg:golang/../nearby",
	}
	if diff := cmp.Diff(want, locators); diff != "" {
		t.Errorf("package URLs (-want +got):\n%s", diff)
	}
	const sum = "304010c3d65c5978c19155b729967fa3c03d25f424155faad11b07a5330f7d77"
	if got := described.Packages[2].PackageChecksums; len(got) != 1 || got[0].Value != sum {
		t.Errorf("checksums %v, want %s", got, sum)
	}
}

// TestRun describes the binary under test, as in make test-integration, or this test's, whose
// modules Go does not record.
func TestRun(t *testing.T) {
	t.Parallel()
	binary := os.Getenv("SACM_BINARY")
	names := []string{"sa-controller-manager", "stdlib", "k8s.io/client-go"}
	if binary == "" {
		var err error
		if binary, err = os.Executable(); err != nil {
			t.Fatal(err)
		}
		names = names[1:2]
	}
	var texts [2][]byte
	for i := range texts {
		out := filepath.Join(t.TempDir(), "sbom.json")
		testutil.Must(t, run([]string{"-binary=" + binary, "-out=" + out, "-version=v1.0.0", "-date=2026-11-21T10:00:00Z"}))
		var err error
		if texts[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("equal binaries give different documents")
	}
	var described spdx.Document
	testutil.Must(t, json.Unmarshal(texts[0], &described))
	if err := spdxlib.ValidateDocument(&described); err != nil {
		t.Error(err)
	}
	for _, name := range names {
		if !slices.ContainsFunc(described.Packages, func(p *spdx.Package) bool { return p.PackageName == name && p.PackageVersion != "" }) {
			t.Errorf("%s, which is linked, is not listed with a version", name)
		}
	}
}
