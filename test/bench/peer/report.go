// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// Report is what a run has measured. No number of docs/benchmarks.md is typed by hand.
type Report struct {
	Machine  string   `json:"machine"`
	Versions []string `json:"versions"`
	Sizes    Sizes    `json:"sizes"`
	// Missing are the scenarios that were left out or have failed.
	Missing []string `json:"missing,omitempty"`
	Rows    []*Row   `json:"rows"`
}

// Row has the repetitions of one number: of what Kubernetes has, and of sa-controller-manager.
type Row struct {
	Scenario   string    `json:"scenario"`
	Metric     string    `json:"metric"` // and its unit
	Kubernetes []float64 `json:"kubernetes"`
	Ours       []float64 `json:"ours"`
}

// add adds the value of one more repetition.
func (r *Report) add(scenario, metric string, ours bool, value float64) {
	i := slices.IndexFunc(r.Rows, func(row *Row) bool { return row.Scenario == scenario && row.Metric == metric })
	if i < 0 {
		i = len(r.Rows)
		r.Rows = append(r.Rows, &Row{Scenario: scenario, Metric: metric})
	}
	values := &r.Rows[i].Kubernetes
	if ours {
		values = &r.Rows[i].Ours
	}
	*values = append(*values, digits(value, 4))
}

// Write replaces the file.
func (r *Report) Write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // G301: results are for everybody
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644) //nolint:gosec // G306: results are for everybody
}

var marked = regexp.MustCompile(`(?s)(<!-- results -->\n).*(<!-- end -->)`)

// Fill replaces what is between the markers of a page by what the file of a report has.
func Fill(page, results string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(results)
	if err != nil {
		return err
	}
	r := &Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return fmt.Errorf("read results of %s: %w", results, err)
	}
	filled := marked.ReplaceAllString(string(text), "${1}"+r.markdown()+"${2}")
	return os.WriteFile(page, []byte(filled), 0o644) //nolint:gosec // G306: a file of the repository
}

// markdown has the median of each number, the range of several repetitions, and the ratio of the medians.
func (r *Report) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "- Machine: %s\n- Versions: %s\n- Sizes: %s\n", r.Machine, strings.Join(r.Versions, ", "), r.Sizes)
	if len(r.Missing) > 0 {
		fmt.Fprintf(&out, "- **Not measured: %s**\n", strings.Join(r.Missing, ", "))
	}
	out.WriteString("\n| | Kubernetes | sa-controller-manager | Ratio |\n|---|---|---|---|\n")
	for _, row := range r.Rows {
		text := ""
		if value, ok := row.ratio(); ok {
			text = number(value) + "x"
		}
		fmt.Fprintf(&out, "| %s: %s | %s | %s | %s |\n", row.Scenario, row.Metric, cell(row.Kubernetes), cell(row.Ours), text)
	}
	return out.String()
}

// ratio is that of the medians. Without a number of Kubernetes, or if that is next to nothing, there is none.
func (row *Row) ratio() (float64, bool) {
	if len(row.Kubernetes) == 0 || slices.Min(row.Kubernetes) <= 0 {
		return 0, false
	}
	return quantile(row.Ours, 0.5) / quantile(row.Kubernetes, 0.5), true
}

func cell(values []float64) string {
	if len(values) == 0 {
		return ""
	}
	text := number(quantile(values, 0.5))
	if low, high := number(slices.Min(values)), number(slices.Max(values)); low != high {
		text += fmt.Sprintf(" (%s–%s)", low, high)
	}
	return text
}

// number keeps two digits: the measurements scatter by more than a third one shows.
func number(value float64) string { return strconv.FormatFloat(digits(value, 2), 'f', -1, 64) }

func digits(value float64, n int) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(value, 'g', n, 64), 64)
	if err != nil {
		return value
	}
	return short
}

// quantile interpolates between the two nearest values; q is from 0 to 1. Of no value it is NaN.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	place := q * float64(len(sorted)-1)
	below := int(place)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (place-float64(below))*(sorted[above]-sorted[below])
}

// machine describes the one that it runs on. What that does not tell is left empty.
func machine() string {
	cpu, memory := runtime.GOARCH, uint64(0)
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 {
			cpu = cmp.Or(cpus[0].ModelName, cpu)
		}
		if info, err := proc.Meminfo(); err == nil && info.MemTotal != nil {
			memory = *info.MemTotal
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s, %d cores, %d GiB; Linux %s; %s; %s", cpu, runtime.NumCPU(), (memory+1<<19)>>20,
		strings.TrimSpace(string(kernel)), runtime.Version(), time.Now().UTC().Format(time.DateOnly))
}
