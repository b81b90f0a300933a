// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const output = `goos: linux
pkg: sa-controller-manager/signing
BenchmarkKeys/quiet-2         	     200	        12.5 ns/op	       0 B/op	       0 allocs/op
BenchmarkToken/P-256-16       	     200	     53389 ns/op	   10701 B/op	      95 allocs/op
BenchmarkTime-2               	     200	     53389 ns/op
PASS
ok  	sa-controller-manager/signing	1.893s
`

func TestCompare(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		committed string
		output    string
		want      string
	}{
		"Same":    {committed: "BenchmarkKeys/quiet 0\nBenchmarkToken/P-256 95\n"},
		"Fewer":   {reason: "is welcome", committed: "BenchmarkKeys/quiet 0\nBenchmarkToken/P-256 96\n"},
		"Hardly":  {reason: "a garbage collection came between", committed: "BenchmarkKeys/quiet 0\nBenchmarkToken/P-256 94\n"},
		"More":    {committed: "# comment\nBenchmarkKeys/quiet 0\nBenchmarkToken/P-256 93\n", want: "BenchmarkToken/P-256 allocates 95 times per operation, want 93 at most"},
		"New":     {reason: "somebody has to say what is right", committed: "BenchmarkKeys/quiet 0\n", want: "BenchmarkToken/P-256 has no committed value"},
		"Gone":    {reason: "what does not run grows unseen", committed: "BenchmarkKeys/quiet 0\nBenchmarkOld 1\nBenchmarkToken/P-256 95\n", want: "BenchmarkOld has not run"},
		"Garbage": {committed: "BenchmarkKeys/quiet\n", want: `FILE: "BenchmarkKeys/quiet": want the name of a benchmark and a number`},
		"Failed":  {reason: "a benchmark that fails has no result", output: output + "--- FAIL: BenchmarkOther\nFAIL\n", want: "go test: --- FAIL: BenchmarkOther"},
		"Nothing": {reason: "a wrong pattern must not pass", output: "PASS\n", want: "there is no benchmark with -benchmem in the output"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "allocations.txt")
			if err := os.WriteFile(path, []byte(tc.committed), 0o600); err != nil {
				t.Fatal(err)
			}
			if tc.output == "" {
				tc.output = output
			}
			got := ""
			if err := run(strings.NewReader(tc.output), path, false); err != nil {
				got = strings.ReplaceAll(err.Error(), path, "FILE")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestUpdate writes a file that what was measured then passes.
func TestUpdate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "allocations.txt")
	for _, update := range []bool{true, false} {
		if err := run(strings.NewReader(output), path, update); err != nil {
			t.Errorf("update %v: %v", update, err)
		}
	}
}
