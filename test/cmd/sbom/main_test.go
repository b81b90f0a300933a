// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const sumOfCobra = "h1:MEAQw9ZcWXjBkVW3KZZ/o8A9JfQkFV+q0RsHpTMPfXc=" // 32 bytes, as any

func TestDescribe(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{
		GoVersion: "go1.26.1",
		Main:      debug.Module{Path: "example", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "github.com/Upper/case", Version: "v1.2.0+incompatible", Sum: sumOfCobra},
			{Path: "old", Version: "v1.0.0", Replace: &debug.Module{Path: "new", Version: "v2.0.0"}},
			{Path: "nearby", Replace: &debug.Module{Path: "../nearby"}},
		},
	}
	described := describe(info, subject{file: "example-linux", version: "v0.1.0", sha256: "ab", created: time.Unix(0, 0)})

	var locators []string
	for _, part := range described.Packages {
		locators = append(locators, part.ExternalRefs[0].Locator)
	}
	want := []string{
		"pkg:golang/example@v0.1.0",
		"pkg:golang/stdlib@1.26.1",
		"pkg:golang/github.com/upper/case@v1.2.0%2Bincompatible",
		"pkg:golang/new@v2.0.0",
		"pkg:golang/../nearby",
	}
	if diff := cmp.Diff(want, locators); diff != "" {
		t.Errorf("package URLs (-want +got):\n%s", diff)
	}
	sum, _ := moduleSum(sumOfCobra)
	if diff := cmp.Diff([]checksum{{"SHA256", sum}}, described.Packages[2].Checksums); diff != "" || len(sum) != 64 {
		t.Errorf("checksum (-want +got):\n%s", diff)
	}
	if got, want := described.Packages[2].DownloadLocation, noAssertion; got != want {
		t.Errorf("the module is at %q, want %q", got, want)
	}
	if got := described.CreationInfo.Created; got != "1970-01-01T00:00:00Z" {
		t.Errorf("created %q", got)
	}
}

// TestRun describes the binary of this test, which is a Go binary like any other.
func TestRun(t *testing.T) {
	t.Parallel()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	first, second := written(t, binary), written(t, binary)
	if !bytes.Equal(first, second) {
		t.Error("equal binaries give different documents")
	}
	valid(t, first)

	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	var described document
	if err := json.Unmarshal(first, &described); err != nil {
		t.Fatal(err)
	}
	if got := described.Packages[0].Checksums[0].Value; got != hex.EncodeToString(sum[:]) {
		t.Errorf("the binary has the checksum %s", got)
	}
}

// TestProduct describes the binary under test, as in make test-integration. A binary made
// by go test, as above, does not name its modules.
func TestProduct(t *testing.T) {
	t.Parallel()
	binary := os.Getenv("SACM_BINARY")
	if binary == "" {
		t.Skip("SACM_BINARY names no binary")
	}
	text := written(t, binary)
	valid(t, text)
	var described document
	if err := json.Unmarshal(text, &described); err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"sa-controller-manager", "stdlib", "k8s.io/client-go"} {
		i := slices.IndexFunc(described.Packages, func(p spdxPackage) bool { return p.Name == module })
		if i < 0 || described.Packages[i].VersionInfo == "" {
			t.Errorf("%s, which is linked, is not listed with a version", module)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"no file":      {"-binary=" + filepath.Join(t.TempDir(), "none")},
		"no Go binary": {"-binary=main.go"},
		"no time":      {"-binary=main.go", "-date=yesterday"},
	} {
		if err := run(args); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func written(t *testing.T, binary string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "sbom.json")
	if err := run([]string{"-binary=" + binary, "-out=" + out, "-version=v1.0.0", "-date=2026-11-21T10:00:00Z"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// valid checks what SPDX 2.3 requires of a document and of its packages, and that what is
// referred to exists (chapters 6, 7 and 11).
func valid(t *testing.T, text []byte) {
	t.Helper()
	var raw struct {
		Fields   map[string]any
		Packages []map[string]any `json:"packages"`
		Related  []relationship   `json:"relationships"`
		Creation creationInfo     `json:"creationInfo"`
	}
	for _, into := range []any{&raw, &raw.Fields} {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	for field, want := range map[string]string{
		"spdxVersion": `^SPDX-2\.3$`, "dataLicense": `^CC0-1\.0$`, "SPDXID": `^SPDXRef-DOCUMENT$`, "name": `.`,
		"documentNamespace": `^https://[^#]+$`,
	} {
		if value, _ := raw.Fields[field].(string); !regexp.MustCompile(want).MatchString(value) {
			t.Errorf("%s is %q, want %s", field, value, want)
		}
	}
	if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`).MatchString(raw.Creation.Created) {
		t.Errorf("created is %q", raw.Creation.Created)
	}
	for _, creator := range raw.Creation.Creators {
		if !regexp.MustCompile(`^(Tool|Person|Organization): .`).MatchString(creator) {
			t.Errorf("creator %q", creator)
		}
	}
	ids := map[string]bool{documentID: true}
	for _, part := range raw.Packages {
		id, _ := part["SPDXID"].(string)
		if !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(id) || ids[id] {
			t.Errorf("the SPDXID %q is malformed or there twice", id)
		}
		ids[id] = true
		for _, field := range []string{"name", "downloadLocation", "licenseConcluded", "copyrightText"} {
			if value, _ := part[field].(string); value == "" {
				t.Errorf("%s has no %s", id, field)
			}
		}
	}
	for _, one := range raw.Related {
		if !ids[one.Element] || !ids[one.Related] {
			t.Errorf("%s %s %s: no such element", one.Element, one.Type, one.Related)
		}
	}
	if !slices.ContainsFunc(raw.Related, func(r relationship) bool { return r.Element == documentID && r.Type == "DESCRIBES" }) {
		t.Error("the document describes nothing")
	}
}
