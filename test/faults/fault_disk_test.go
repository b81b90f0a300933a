// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJudgeRefusal(t *testing.T) {
	t.Parallel()
	const good = "error: write /disk/keys/.state.json.tmp: no space left on device\n"
	cases := map[string]struct {
		succeeded bool
		output    string
		change    func(after map[string]string)
		want      []string
	}{
		"Refused":   {output: good},
		"Succeeded": {succeeded: true, output: good, want: []string{"says that all is well: " + good}},
		"Silent":    {want: []string{`does not say "no space left on device": `, `does not say "/disk/keys": `}},
		"OtherReason": {
			output: "error: unknown flag in /disk/keys",
			want:   []string{`does not say "no space left on device": error: unknown flag in /disk/keys`},
		},
		"Nowhere": {output: "no space left on device", want: []string{`does not say "/disk/keys": no space left on device`}},
		"Changed": {output: good, change: func(after map[string]string) { after["state.json"] = "half" }, want: []string{"has changed state.json"}},
		"Removed": {output: good, change: func(after map[string]string) { delete(after, "a.key") }, want: []string{"has removed a.key"}},
		"Left":    {output: good, change: func(after map[string]string) { after[".b.key.tmp"] = "" }, want: []string{"has left .b.key.tmp behind"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := map[string]string{"state.json": "{}", "a.key": "key"}
			after := maps.Clone(before)
			if tc.change != nil {
				tc.change(after)
			}
			got := judgeRefusal(tc.succeeded, tc.output, "no space left on device", "/disk/keys", before, after)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("what is wrong (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFilesBelow: nothing that a command may leave behind is overlooked.
func TestFilesBelow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before, err := filesBelow(dir)
	if err != nil || len(before) > 0 {
		t.Fatalf("%v, %v", before, err)
	}
	for name, do := range map[string]func(path string) error{
		"empty":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
		".hidden":   func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink("nowhere", path) },
	} {
		if err := do(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	first, err := filesBelow(dir)
	if err != nil || len(first) != 4 {
		t.Fatalf("%v, %v, want four", first, err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".hidden"), []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := filesBelow(dir)
	if err != nil {
		t.Fatal(err)
	}
	var changed []string
	for name := range first {
		if first[name] != second[name] {
			changed = append(changed, name)
		}
	}
	if diff := cmp.Diff([]string{".hidden"}, changed); diff != "" {
		t.Errorf("changed files (-want +got):\n%s", diff)
	}
}
