// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package printers_test

import (
	"bytes"
	"errors"
	"testing"

	"sa-controller-manager/internal/printers"
	"sa-controller-manager/internal/testutil"
)

type row struct {
	Name string `json:"name"`
}

type numbers = printers.List[row, map[string]int]

func TestList(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		output string
		pages  [][]row
		want   string
	}{
		"JSON": {
			output: "json", pages: [][]row{{{"a"}}, {{"b\u009b"}}},
			want: `{
  "apiVersion": "sa-controller-manager/v1",
  "kind": "Numbers",
  "numbers": [
    {
      "name": "a"
    },
    {
      "name": "b\u009b"
    }
  ],
  "summary": {
    "shown": 2
  }
}
`,
		},
		"YAML": {
			output: "yaml", pages: [][]row{{{"a"}}, {{"b"}}},
			want: "apiVersion: sa-controller-manager/v1\nkind: Numbers\nnumbers:\n- name: a\n- name: b\nsummary:\n  shown: 2\n",
		},
		"NoneJSON": {
			output: "json",
			want: "{\n  \"apiVersion\": \"sa-controller-manager/v1\",\n  \"kind\": \"Numbers\",\n  \"numbers\": [],\n  \"summary\": " +
				"{\n    \"shown\": 0\n  }\n}\n",
		},
		"NoneYAML": {output: "yaml", want: "apiVersion: sa-controller-manager/v1\nkind: Numbers\nnumbers: []\nsummary:\n  shown: 0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			list, shown := &numbers{W: &got, Output: tc.output, Head: printers.Of("Numbers"), RowsField: "numbers", EndField: "summary"}, 0
			for _, page := range tc.pages {
				testutil.Must(t, list.Rows(page))
				shown += len(page)
			}
			testutil.Must(t, list.End(map[string]int{"shown": shown}))
			testutil.Check(t, "document", tc.want, got.String())
		})
	}
}

func TestListOnAFullDisk(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"json", "yaml"} {
		list := &numbers{W: full{}, Output: output, Head: printers.Of("Numbers"), RowsField: "numbers", EndField: "summary"}
		for _, err := range []error{list.Rows([]row{{"a"}}), list.End(nil)} {
			if !errors.Is(err, errFull) || err.Error() != "print the numbers: full" {
				t.Errorf("%s: %v", output, err)
			}
		}
	}
}
