// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	const other = "# Title\n\n## What it *is*, in `brief`\n\n## Twice\n\n## Twice\n\n```sh\n# no heading\n```\n"
	cases := map[string]struct {
		reason string
		page   string
		want   []string
	}{
		"file":        {reason: "relative links resolve beside the page", page: "[a](other.md) ![b](dir/)"},
		"heading":     {reason: "punctuation is dropped, blanks become hyphens", page: "[a](other.md#what-it-is-in-brief)"},
		"repeated":    {reason: "the second of equal headings has a number", page: "[a](other.md#twice) [b](other.md#twice-1)"},
		"own heading": {reason: "a fragment alone is about the same page", page: "# Here\n[a](#here)"},
		"other hosts": {reason: "they are not ours to check", page: "[a](https://example.com/x) [b](mailto:a@example.com)"},
		"code":        {reason: "code is not a link", page: "`[a](none.md)`\n```\n[b](none.md)\n```\n"},
		"no file":     {reason: "the file does not exist", page: "[a](none.md)", want: []string{"none.md: no such file"}},
		"reference":   {reason: "reference definitions are links too", page: "[a]: none.md", want: []string{"none.md: no such file"}},
		"no heading":  {reason: "a comment in code is no heading", page: "[a](other.md#no-heading)", want: []string{"other.md#no-heading: no such heading"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			page := filepath.Join(dir, "page.md")
			for path, content := range map[string]string{page: tc.page, filepath.Join(dir, "other.md"): other} {
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(dir, "dir"), 0o700); err != nil {
				t.Fatal(err)
			}
			got, err := check(page)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
