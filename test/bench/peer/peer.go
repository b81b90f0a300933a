// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peer measures sa-controller-manager beside kube-controller-manager, one after the other and on equal control planes.
// docs/benchmarks.md describes its scenarios.
//
// A repetition whose end state is not the one that it has to be is an error, not a number.
package peer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/measure"
)

const (
	// waitTimeout bounds each wait.
	waitTimeout = 15 * time.Minute
	// between the measurements a limiter of requests fills up again (KCM's in 1.5 s), and what was begun ends.
	between = 2 * time.Second
)

// Sizes say how much is measured.
type Sizes struct {
	Repetitions int `json:"repetitions"`
	Namespaces  int `json:"namespaces"`
	Secrets     int `json:"secrets"`  // token Secrets, each of an account of its own
	Foreign     int `json:"foreign"`  // Secrets of others
	Pods        int `json:"pods"`     // created by one client, for each kind of admission and repetition
	Accounts    int `json:"accounts"` // in the namespace of the last Pods
}

// String is the line of the page.
func (s Sizes) String() string {
	return fmt.Sprintf("repetitions %d, namespaces %d, token Secrets %d, foreign Secrets %d, Pods %d, accounts beside them %d",
		s.Repetitions, s.Namespaces, s.Secrets, s.Foreign, s.Pods, s.Accounts)
}

// Options of a run.
type Options struct {
	Binary devcluster.Binary
	Sizes  Sizes
	// Settling is how long programs come to rest: the Go runtime collects garbage unasked for after two minutes.
	Settling time.Duration
	Window   time.Duration // in which nothing happens
	Report   *Report
	// Out gets a line for each value, Progress one for what is under way.
	Out, Progress io.Writer
}

// Full is the run of the page, Quick one of minutes: one repetition, and less of everything.
func Full() *Options {
	return &Options{
		Sizes:    Sizes{Repetitions: 3, Namespaces: 1000, Secrets: 1000, Foreign: 5000, Pods: 500, Accounts: 15000},
		Settling: 130 * time.Second, Window: time.Minute,
	}
}

// Quick is such a run.
func Quick() *Options {
	return &Options{
		Sizes:    Sizes{Repetitions: 1, Namespaces: 50, Secrets: 100, Foreign: 1000, Pods: 100, Accounts: 1000},
		Settling: 10 * time.Second, Window: 30 * time.Second,
	}
}

// Scenarios are the names of all there are.
var Scenarios = []string{"changes", "rest", "pods", "failover"}

// Measure measures some scenarios and writes the results after each. It goes on after one that cannot be measured, because
// each takes long and none needs another one.
func (o *Options) Measure(ctx context.Context, scenarios []string, out string) error {
	var err error
	if o.Report, err = o.newReport(ctx); err != nil {
		return err
	}
	fmt.Fprintln(o.Out, o.Report.Machine)
	var errs []error
	for i, measure := range []func(context.Context) error{o.changes, o.rest, o.pods, o.failover} {
		before := slices.Clone(o.Report.Rows)
		if !slices.Contains(scenarios, Scenarios[i]) {
			o.Report.Missing = append(o.Report.Missing, Scenarios[i])
			continue
		}
		if err := measure(ctx); err != nil {
			err = fmt.Errorf("scenario %s: %w", Scenarios[i], err)
			fmt.Fprintln(o.Progress, err)
			errs = append(errs, err)
			// Some repetitions are no result.
			o.Report.Rows, o.Report.Missing = before, append(o.Report.Missing, Scenarios[i])
		}
		errs = append(errs, o.Report.Write(out))
	}
	return errors.Join(errs...)
}

// newReport is one without results, of this machine and these binaries.
func (o *Options) newReport(ctx context.Context) (*Report, error) {
	r := &Report{Machine: machine(), Sizes: o.Sizes}
	for _, name := range []string{ours, kcm, "kube-apiserver", "etcd"} {
		path, err := o.Binary.Path, error(nil)
		if name != ours {
			path, err = devcluster.ControlPlaneBinary(name)
		}
		if err != nil {
			return nil, err
		}
		printed, err := exec.CommandContext(ctx, path, "--version").Output()
		if err != nil {
			return nil, fmt.Errorf("%s --version: %w", path, err)
		}
		// The last word of the first line: "Kubernetes v1.2.3", "etcd Version: 3.4.5".
		line, _, _ := strings.Cut(string(printed), "\n")
		r.Versions = append(r.Versions, name+" "+line[strings.LastIndexByte(line, ' ')+1:])
	}
	return r, nil
}

// statusf says what is under way from now on.
func (o *Options) statusf(format string, args ...any) {
	fmt.Fprintf(o.Progress, time.Now().Format(time.TimeOnly)+"  "+format+"\n", args...)
}

// add keeps a value and prints it.
func (o *Options) add(scenario, metric, program string, value float64) {
	o.Report.add(scenario, metric, program == ours, value)
	fmt.Fprintf(o.Out, "%-36s %-48s %-24s %8.4g\n", scenario, metric, program, value)
}

// Names of the programs that alternate.
const (
	kcm  = "kube-controller-manager"
	ours = "sa-controller-manager"
)

// running is a program that was started.
type running struct {
	*devcluster.Manager

	name  string
	ready time.Duration // since its start
	world *world
}

// start returns once the program is ready: kube-controller-manager with the four controllers that sa-controller-manager
// replaces and no other, or sa-controller-manager, in mode manual unless the flags say otherwise. It is asked
// every few milliseconds, because times of some hundred are measured.
func (o *Options) start(ctx context.Context, w *world, name string, flags ...string) (*running, error) {
	flags = append([]string{"--kubeconfig=" + w.kubeconfig, "-v=0"}, flags...)
	r, begun, path := &running{name: name, world: w}, time.Now(), "/readyz"
	var err error
	if name == kcm {
		path = "/healthz" // it has no other
		r.Manager, err = w.StartKubeControllerManager(append(flags,
			"--authentication-kubeconfig="+w.Kubeconfig(), "--authorization-kubeconfig="+w.Kubeconfig(),
			"--client-ca-file="+w.ClientCAFile(),
			"--controllers=serviceaccount-controller,serviceaccount-token-controller,"+
				"root-ca-certificate-publisher-controller,legacy-serviceaccount-token-cleaner-controller")...)
	} else {
		r.Manager, err = o.Binary.StartManager(w.Cluster, append([]string{"--token-secrets=manual"}, flags...)...)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errors.New("it is not ready"))
	defer cancel()
	for {
		if _, err = r.Get(ctx, path); err == nil {
			r.ready = time.Since(begun)
			return r, nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.Done():
			return nil, fmt.Errorf("%s has ended by itself:\n%s", name, r.LogTail(20))
		case <-ctx.Done():
			return nil, fmt.Errorf("await that %s is ready: %w: %w", name, context.Cause(ctx), err)
		}
	}
}

// methods are how many requests a program has sent, by HTTP method: lists and watches are GETs, too.
type methods map[string]float64

func (m methods) sum() (sum float64) {
	for _, n := range m {
		sum += n
	}
	return sum
}

// cost is what a program has cost by a moment.
type cost struct {
	at             time.Time
	cpu, apiServer float64 // of the program and of kube-apiserver, seconds
	methods        methods
	anon, max      float64 // memory, MiB
}

// since is what was spent since an earlier moment.
func (c cost) since(before cost) cost {
	spent := methods{}
	for method, n := range c.methods {
		spent[method] = n - before.methods[method]
	}
	return cost{at: before.at, cpu: c.cpu - before.cpu, apiServer: c.apiServer - before.apiServer, methods: spent}
}

// cost reads /proc after the metrics, the first time, and so counts one scrape in each window.
func (r *running) cost(ctx context.Context) (cost, error) {
	metrics, err1 := r.Metrics(ctx)
	used, err2 := measure.CPU(r.PID())
	memory, err3 := measure.MemoryOf(r.PID())
	served, err4 := measure.CPU(r.world.APIServerPID())
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return cost{}, fmt.Errorf("read what %s costs: %w", r.name, err)
	}
	sent := methods{}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		sent[method] = metrics.Sum("rest_client_requests_total", devcluster.Labels{"method": method})
	}
	return cost{time.Now(), used.Seconds(), served.Seconds(), sent, float64(memory.Anon) / 1024, float64(memory.Peak) / 1024}, nil
}

// foreignSize is that of each foreign Secret, in bytes.
const foreignSize = 10 << 10

// rest starts both programs in a cluster that has been in use, beside Secrets of others, with leader election, and ours
// with its webhook. Then nothing happens: once they have come to rest, it measures what they cost.
func (o *Options) rest(ctx context.Context) error {
	return onFresh(ctx, devcluster.Options{}, func(ctx context.Context, w *world) error {
		o.statusf("at rest, making the objects")
		r, err := o.start(ctx, w, ours)
		if err != nil {
			return err
		}
		if err := o.fill(ctx, w, r, ""); err != nil {
			return err
		}
		if _, err := r.Stop(); err != nil {
			return err
		}
		content := bytes.Repeat([]byte("0123456789abcdef"), foreignSize/16)
		if err := each(ctx, writers, o.Sizes.Foreign, func(ctx context.Context, i int) error {
			return w.makeSecret(ctx, bench(i%o.Sizes.Namespaces), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("foreign-%05d", i)}, Data: map[string][]byte{"content": content},
			})
		}); err != nil {
			return err
		}
		for repetition := range o.Sizes.Repetitions {
			o.statusf("at rest, %d of %d, settling for %v", repetition+1, o.Sizes.Repetitions, o.Settling)
			if err := o.settled(ctx, w); err != nil {
				return err
			}
		}
		return nil
	})
}

func (o *Options) settled(ctx context.Context, w *world) error {
	port, err := devcluster.FreePort()
	if err != nil {
		return err
	}
	var all []*running
	for program, flags := range map[string][]string{kcm: nil,
		ours: {fmt.Sprintf("--webhook-port=%d", port), "--webhook-registration=url"}} {
		r, err := o.replica(ctx, w, program, flags...)
		if err != nil {
			return err
		}
		all = append(all, r)
		o.add("start", "time until ready, s", program, r.ready.Seconds())
	}
	if err := sleep(ctx, o.Settling); err != nil {
		return err
	}
	before := map[*running]cost{}
	for _, r := range all {
		if before[r], err = r.cost(ctx); err != nil {
			return err
		}
		o.add("at rest", "memory, RssAnon, MiB", r.name, before[r].anon)
		o.add("at rest", "peak memory since the start, RSS, MiB", r.name, before[r].max)
	}
	if err := sleep(ctx, o.Window); err != nil {
		return err
	}
	var errs []error
	for _, r := range all {
		after, err := r.cost(ctx)
		spent, minutes := after.since(before[r]), after.at.Sub(before[r].at).Minutes()
		o.add("at rest", "CPU a minute, s", r.name, spent.cpu/minutes)
		o.add("at rest", "requests a minute", r.name, spent.methods.sum()/minutes)
		_, stopped := r.Stop()
		errs = append(errs, err, stopped)
	}
	return errors.Join(errs...)
}

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

// Fill replaces what is between the markers of a page by what the file of a report has, and the chart in the folder of its name.
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
	chart := filepath.Join(strings.TrimSuffix(page, ".md"), "ratios.svg")
	return errors.Join(
		os.WriteFile(page, []byte(filled), 0o644),     //nolint:gosec // G306: a file of the repository
		os.WriteFile(chart, []byte(r.chart()), 0o644), //nolint:gosec // G306: likewise
	)
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

const (
	chartTitle = "sa-controller-manager beside kube-controller-manager, which is 1 (dashed)"
	chartHint  = "Shorter is better. Default flags: the gap is kube-controller-manager's own limit, 20 requests a second"
)

// chart draws the times of changes and the memory as a bar of their ratio each. Its grey can be read on light and on dark ground.
func (r *Report) chart() string {
	const labels, width, row, head = 370, 250, 24, 56
	var bars []string
	var ratios []float64
	longest := 1.0 // where the dashed line is
	for _, one := range r.Rows {
		if ratio, ok := one.ratio(); ok && (strings.HasPrefix(one.Metric, "time, ") || strings.HasPrefix(one.Metric, "memory")) {
			what, _, _ := strings.Cut(one.Metric, ",")
			bars, ratios, longest = append(bars, one.Scenario+": "+what), append(ratios, ratio), max(longest, ratio)
		}
	}
	var out strings.Builder
	bottom := head + row*len(bars)
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 %d" role="img" aria-label="%s">`+"\n", bottom+16,
		chartTitle)
	out.WriteString(`<style>text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-size:15px;font-weight:600}rect{fill:#2f81f7}` +
		`line{stroke:#bf8700;stroke-dasharray:4 3}@media(prefers-color-scheme:dark){text{fill:#adbac7}}</style>` + "\n")
	fmt.Fprintf(&out, `<text class="t" x="16" y="22">%s</text><text x="16" y="42">%s</text>`+"\n", chartTitle, html.EscapeString(chartHint))
	for i, bar := range bars {
		y, length := head+row*i, ratios[i]/longest*width
		fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="end">%s</text>`, labels-8, y+14, html.EscapeString(bar))
		fmt.Fprintf(&out, `<rect x="%d" y="%d" width="%.1f" height="16" rx="2"/>`, labels, y+1, length)
		fmt.Fprintf(&out, `<text x="%.1f" y="%d">%s</text>`+"\n", labels+length+6, y+14, number(ratios[i]))
	}
	fmt.Fprintf(&out, `<line x1="%[1]d" y1="%[2]d" x2="%[1]d" y2="%[3]d"/>`+"\n</svg>\n", labels+int(width/longest), head-4, bottom)
	return out.String()
}
