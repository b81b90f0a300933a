// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestSVG reads the charts as XML and looks for what has to be in them.
func TestSVG(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		svg  string
		want []string
	}{
		"Bars": {
			svg:  Bars{Title: "A < B", Unit: "ms", Mark: 1, Bars: []Bar{{"them & co", 2, false}, {"ours", 0.5, true}}}.SVG(),
			want: []string{"A &lt; B", "them &amp; co", `class="b" x="330" y="57" width="294"`, `class="a" x="330" y="81" width="73.5"`, `x1="477"`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decoder := xml.NewDecoder(strings.NewReader(tc.svg))
			for {
				if _, err := decoder.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%v in\n%s", err, tc.svg)
				}
			}
			for _, want := range tc.want {
				if !strings.Contains(tc.svg, want) {
					t.Errorf("no %q in\n%s", want, tc.svg)
				}
			}
		})
	}
}
