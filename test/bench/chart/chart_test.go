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

func TestLength(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		scale       scale
		value, want float64
	}{
		"Most":     {scale{4, 100}, 4, 100},
		"Half":     {scale{4, 100}, 2, 50},
		"Zero":     {scale{4, 100}, 0, 0},
		"Negative": {scale{4, 100}, -1, 0},
		"Empty":    {scale{0, 100}, 1, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.scale.length(tc.value); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]string{0.0566: "0.06", 1: "1.00", 12.34: "12.3", 190.6: "191", 100000: "100000", -0.16: "-0.16"} {
		if got := Number(value); got != want {
			t.Errorf("Number(%v) = %q, want %q", value, got, want)
		}
	}
}

// TestSVG reads the charts as XML and looks for what has to be in them.
func TestSVG(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		svg  string
		want []string
	}{
		"Bars": {
			svg:  Bars{Title: "A < B", Unit: "ms", Mark: 1, Bars: []Bar{{"them & co", 2, false}, {"ours", 0.5, true}}}.SVG(),
			want: []string{"A &lt; B", "them &amp; co", `class="b" x="300" y="57" width="324"`, `class="a" x="300" y="81" width="81"`, `x1="462"`},
		},
		"NoBars": {svg: Bars{Title: "Nothing"}.SVG(), want: []string{"Nothing"}},
		"Line": {
			svg:  Line{Title: "Time", XUnit: "Secrets", Points: []Point{{10, 1}, {100, 20}}}.SVG(),
			want: []string{`class="l" points="80,260 136,249.8 640,56"`, `class="m" fill="none" points="80,260 640,158"`},
		},
		"NoLine": {svg: Line{Title: "Nothing"}.SVG(), want: []string{"Nothing"}},
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
