// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
	"sa-controller-manager/internal/testutil"
)

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
