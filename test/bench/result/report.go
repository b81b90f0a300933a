// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package result keeps what was measured: the machine, the versions, every value of every
// repetition. It writes it as JSON and renders the tables of docs/benchmarks.md from it,
// so that no number is ever typed by hand. It is for one goroutine.
package result

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Report is one run of a measurement.
type Report struct {
	Name       string         `json:"name"`
	Machine    Machine        `json:"machine"`
	Versions   []string       `json:"versions"`
	Conditions []string       `json:"conditions"`
	Sizes      map[string]int `json:"sizes"`
	// Complete is false in what a run leaves that was cut short, or left something out.
	Complete bool     `json:"complete"`
	Series   []Series `json:"series"`
}

// Series are the repetitions of one number.
type Series struct {
	Scenario string    `json:"scenario"`
	Variant  string    `json:"variant"`
	Metric   string    `json:"metric"`
	Unit     string    `json:"unit"`
	Program  string    `json:"program"`
	Values   []float64 `json:"values"`
	Median   float64   `json:"median"`
	// Ratio is Median through that of the reference program; 0 where there is none.
	Ratio float64 `json:"ratio,omitempty"`
}

// Key says which number a value is one repetition of. Unit follows from the others.
type Key struct {
	Scenario, Variant, Metric, Unit, Program string
}

func (s *Series) key() Key { return Key{s.Scenario, s.Variant, s.Metric, s.Unit, s.Program} }

func (r *Report) find(key Key) int {
	return slices.IndexFunc(r.Series, func(s Series) bool { return s.key() == key })
}

// Add adds the value of one more repetition.
func (r *Report) Add(key Key, value float64) {
	i := r.find(key)
	if i < 0 {
		i = len(r.Series)
		r.Series = append(r.Series,
			Series{Scenario: key.Scenario, Variant: key.Variant, Metric: key.Metric, Unit: key.Unit, Program: key.Program})
	}
	r.Series[i].Values = append(r.Series[i].Values, significant(value))
}

// Summarize computes medians, and their ratios to those of the reference program: the
// first of the given ones that was measured as well.
func (r *Report) Summarize(references ...string) {
	for i := range r.Series {
		r.Series[i].Median = Quantile(r.Series[i].Values, 0.5)
	}
	for i := range r.Series {
		r.Series[i].Ratio = r.ratio(&r.Series[i], references)
	}
}

func (r *Report) ratio(s *Series, references []string) float64 {
	for _, reference := range references {
		if s.Program == reference {
			return 0
		}
		key := s.key()
		key.Program = reference
		if j := r.find(key); j >= 0 && r.Series[j].Median > 0 {
			return significant(s.Median / r.Series[j].Median)
		}
	}
	return 0
}

// Drop forgets the series of scenarios.
func (r *Report) Drop(scenarios ...string) {
	r.Series = slices.DeleteFunc(r.Series, func(s Series) bool { return slices.Contains(scenarios, s.Scenario) })
}

// Write replaces the file at once, so that a run that is killed leaves the state before.
func (r *Report) Write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // G301: results are for everybody
		return err
	}
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o644); err != nil { //nolint:gosec // G306: results are for everybody
		return err
	}
	return os.Rename(path+".new", path)
}

// Read reads what Write has written.
func Read(path string) (*Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("read results of %s: %w", path, err)
	}
	return r, nil
}

// Quantile interpolates between the two nearest values; q is from 0 to 1. Of no value it
// is NaN.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	place := q * float64(len(sorted)-1)
	below := int(place)
	above := min(below+1, len(sorted)-1)
	return significant(sorted[below] + (place-float64(below))*(sorted[above]-sorted[below]))
}

// significant keeps four digits, which is more than any of the measurements is good for.
func significant(value float64) float64 { return digits(value, 4) }

func digits(value float64, n int) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(value, 'g', n, 64), 64)
	if err != nil {
		return value
	}
	return short
}
