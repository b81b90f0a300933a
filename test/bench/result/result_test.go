// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"path/filepath"
	"testing"

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
		"Between":   {[]float64{0, 10}, 0.99, 9.9},
		"NotSorted": {[]float64{100, 1, 50, 2, 3}, 0.75, 50},
	}
	for name, tc := range cases {
		if got := Quantile(tc.values, tc.q); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
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

// TestExtend: ratios are of one machine, and a table speaks of one binary and one size.
func TestExtend(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "peer.json")
	if err := measured().Write(path); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Report){
		"OtherMachine": func(r *Report) { r.Machine.Cores++ },
		"OtherBinary":  func(r *Report) { r.Versions = []string{"etcd 2"} },
		"OtherSizes":   func(r *Report) { r.Sizes = nil },
	} {
		other := measured()
		if change(other); other.Extend(path) == nil {
			t.Errorf("%s: it was added to", name)
		}
	}
	later := measured()
	later.Machine.Date, later.Series = "2026-11-22", nil
	if err := later.Extend(path); err != nil {
		t.Fatal(err)
	}
	if later.Drop("b"); later.Has("b") || !later.Has("c") {
		t.Errorf("kept %+v", later.Series)
	}
}
