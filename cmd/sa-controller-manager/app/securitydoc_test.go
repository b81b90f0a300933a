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

	"sa-controller-manager/internal/testutil"
)

// TestPagesNameTests: each test that these pages name exists.
func TestPagesNameTests(t *testing.T) {
	t.Parallel()
	const root = "../../.."
	there := testsBelow(t, root)
	for name, least := range map[string]int{"security.md": 40, "reliability.md": 30} {
		page := testutil.Get(os.ReadFile(filepath.Join(root, "docs", name)))(t)
		named := regexp.MustCompile("[`[]((?:Test|Fuzz)\\w+)[]`]").FindAllStringSubmatch(string(page), -1)
		testutil.Expect(t, len(named) >= least, "%s names %d tests", name, len(named))
		for _, test := range named {
			testutil.Expect(t, there[test[1]], "%s of %s is nowhere", test[1], name)
		}
	}
}

// testsBelow returns the names of all tests and fuzz targets of the repository, including its other
// modules.
func testsBelow(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, dir := range []string{"admission", "cmd", "controllers", "internal", "manifests", "signing", "test", "tokens"} {
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
		testutil.Must(t, err)
	}
	return names
}
