// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"maps"
	"testing"
)

// TestJudgeRefusal wants a command to be found out that did not refuse, did not say why, or has not
// left the files as they were.
func TestJudgeRefusal(t *testing.T) {
	t.Parallel()
	const good = "error: write /disk/keys/.ring.json.tmp: no space left on device\n"
	cases := map[string]struct {
		succeeded bool
		output    string
		change    func(after map[string]string)
		want      int
	}{
		"Refused":   {output: good},
		"Succeeded": {succeeded: true, output: good, want: 1},
		"Silent":    {want: 2},
		"Nowhere":   {output: "no space left on device", want: 1},
		"Changed":   {output: good, change: func(after map[string]string) { after["ring.json"] = "half" }, want: 1},
		"Left":      {output: good, change: func(after map[string]string) { after[".ring.json.tmp"] = "" }, want: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := map[string]string{"ring.json": "{}", "a.key": "key"}
			after := maps.Clone(before)
			if tc.change != nil {
				tc.change(after)
			}
			if got := judgeRefusal(tc.succeeded, tc.output, "no space left on device", "/disk/keys", before, after); len(got) != tc.want {
				t.Errorf("%q, want %d", got, tc.want)
			}
		})
	}
}
