// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMedianAndQuantile(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		values []float64
		q      float64
		want   float64
	}{
		"Odd":       {[]float64{9, 1, 5}, 0.5, 5},
		"Even":      {[]float64{4, 1, 3, 2}, 0.5, 2.5},
		"One":       {[]float64{7}, 0.99, 7},
		"Highest":   {[]float64{1, 2, 3}, 1, 3},
		"Lowest":    {[]float64{3, 2, 1}, 0, 1},
		"Between":   {[]float64{0, 10}, 0.99, 9.9},
		"NotSorted": {[]float64{100, 1, 50, 2, 3}, 0.75, 50},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Quantile(tc.values, tc.q); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("nothing has a median")
	}
	values := []float64{3, 1, 2}
	if Median(values); values[0] != 3 {
		t.Error("the caller's values were sorted")
	}
}

func TestSignificant(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]float64{
		0: 0, 1.23456: 1.235, 123456: 123500, -0.00012344: -0.0001234, 5e-324: 5e-324, math.Inf(1): math.Inf(1),
	} {
		if got := Significant(value); math.Abs(got-want) > 1e-12*math.Abs(want) && got != want {
			t.Errorf("Significant(%v) = %v, want %v", value, got, want)
		}
	}
}

func TestSlope(t *testing.T) {
	t.Parallel()
	if got := Slope(10, 100, 100, 1000); got != 1 {
		t.Errorf("what grows in proportion has slope %v", got)
	}
	if got := Slope(10, 100, 115, 1000); got != 1.15 {
		t.Errorf("got %v, want 1.15", got)
	}
}

// measured has two programs, one number that only one of them has, and no repetition of
// another.
func measured() *Report {
	r := &Report{Name: "peer", Machine: Machine{CPU: "A CPU", Cores: 2, Memory: "4 GiB", Kernel: "6", Go: "go1", Date: "2026-11-21"},
		Versions: []string{"etcd 1"}, Sizes: map[string]int{"secrets": 2, "namespaces": 1}, Conditions: []string{"Quiet"}, Complete: true}
	filled := Key{Scenario: "b", Variant: "default flags", Metric: "time", Unit: "s", Program: "KCM"}
	for _, v := range []float64{200, 190, 198.5} {
		r.Add(filled, v)
	}
	filled.Program = "ours"
	for _, v := range []float64{4, 5, 4.5} {
		r.Add(filled, v)
	}
	r.Add(Key{Scenario: "b", Metric: "requests", Program: "ours"}, 1)
	r.Add(Key{Scenario: "c", Metric: "time", Unit: "s", Program: "KCM"}, 0)
	r.Add(Key{Scenario: "c", Metric: "time", Unit: "s", Program: "ours"}, 3)
	r.Summarize("KCM")
	return r
}

const tableOfB = `| | KCM | ours |
|---|---|---|
| default flags: time, s | 198 (190 to 200) | 4.5 (4 to 5); **0.0227 x** |
| requests |  | 1 |
`

func TestTable(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(tableOfB, measured().Table("b")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := measured().Table("z"); got != "" {
		t.Errorf("a scenario that was not measured has a table: %q", got)
	}
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	r := measured()
	got := map[string]float64{}
	for _, s := range r.Series {
		got[s.Scenario+" "+s.Metric+" "+s.Program] = s.Ratio
	}
	want := map[string]float64{"b time KCM": 0, "b time ours": 0.02267, "b requests ours": 0, "c time KCM": 0, "c time ours": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ratios (-want +got)\n%s", diff)
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	page := "before\n<!-- results: b -->\nold\n<!-- end -->\nbetween\n<!-- results: z -->\nkept\n<!-- end -->\n<!-- about: peer -->\n<!-- end -->\nafter\n"
	want := "before\n<!-- results: b -->\n" + tableOfB + "<!-- end -->\nbetween\n<!-- results: z -->\nkept\n<!-- end -->\n<!-- about: peer -->\n" +
		"- Machine: A CPU, 2 cores, 4 GiB; Linux 6; go1; 2026-11-21\n- Versions: etcd 1\n- Sizes: namespaces 1, secrets 2\n- Quiet\n<!-- end -->\nafter\n"
	for range 2 { // filling twice changes nothing
		got, err := Fill(page, measured().Content)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		page = got
	}
	if _, err := Fill("<!-- results: b -->\nno end\n", measured().Content); err == nil {
		t.Error("a marker without an end was accepted")
	}
}

func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "peer.json")
	want := measured()
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestThisMachine(t *testing.T) {
	t.Parallel()
	m := ThisMachine(time.Unix(0, 0))
	if m.CPU == "" || m.Cores < 1 || m.Kernel == "" || !strings.HasPrefix(m.Go, "go") || m.Date != "1970-01-01" {
		t.Errorf("got %+v", m)
	}
}

func TestExtend(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(old, fresh *Report)
		broken bool
	}{
		"Same":         {change: func(_, fresh *Report) { fresh.Machine.Date = "2026-11-22" }},
		"CutShort":     {reason: "what it has is whole", change: func(old, _ *Report) { old.Complete = false }},
		"OtherMachine": {reason: "ratios are of one machine", change: func(_, fresh *Report) { fresh.Machine.Cores++ }, broken: true},
		"OtherBinary":  {reason: "a table speaks of one", change: func(_, fresh *Report) { fresh.Versions = []string{"etcd 2"} }, broken: true},
		"OtherSizes":   {reason: "a table has one size", change: func(_, fresh *Report) { fresh.Sizes = nil }, broken: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "peer.json")
			old, fresh := measured(), measured()
			fresh.Series = nil
			tc.change(old, fresh)
			if err := old.Write(path); err != nil {
				t.Fatal(err)
			}
			err := fresh.Extend(path, func(scenario string) bool { return scenario == "c" })
			if (err != nil) != tc.broken {
				t.Fatalf("%s: got %v", tc.reason, err)
			}
			if fresh.Has("b") || fresh.Has("c") == tc.broken {
				t.Errorf("kept %+v", fresh.Series)
			}
			if fresh.Drop("c"); fresh.Has("c") {
				t.Error("what was dropped is there")
			}
		})
	}
}
