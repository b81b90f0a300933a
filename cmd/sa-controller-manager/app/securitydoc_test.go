// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityPageNamesTests: what the page says is shown by a test, that test is there.
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
