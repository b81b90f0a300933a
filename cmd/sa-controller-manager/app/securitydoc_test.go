// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityPageNamesTests: each test that the page names exists.
func TestSecurityPageNamesTests(t *testing.T) {
	t.Parallel()
	const docs = "../../../docs"
	page, err := os.ReadFile(filepath.Join(docs, "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\[((?:Test|Fuzz)\w+)\]\(([^)]+)\)`).FindAllStringSubmatch(string(page), -1)
	if len(named) < 40 {
		t.Errorf("%d tests are named", len(named))
	}
	for _, test := range named {
		source, err := os.ReadFile(filepath.Join(docs, test[2]))
		if err != nil || !strings.Contains(string(source), "\nfunc "+test[1]+"(") {
			t.Errorf("%s is not in %s: %v", test[1], test[2], err)
		}
	}
}

// TestReliabilityPageNamesTests: each test that the page names exists.
func TestReliabilityPageNamesTests(t *testing.T) {
	t.Parallel()
	const root = "../../.."
	page, err := os.ReadFile(filepath.Join(root, "docs", "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 30 {
		t.Errorf("%d tests are named", len(named))
	}
	there := testsBelow(t, root)
	for _, test := range named {
		if !there[test[1]] {
			t.Errorf("%s is nowhere", test[1])
		}
	}
}

// testsBelow returns the names of all tests and fuzz targets of the repository, including its other
// modules.
func testsBelow(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, dir := range []string{"admission", "cmd", "controllers", "internal", "signing", "test", "tokens"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, test := range declared.FindAllStringSubmatch(string(source), -1) {
				names[test[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}
