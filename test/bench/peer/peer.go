// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peer measures sa-controller-manager beside kube-controller-manager, one after the other and on equal control planes.
// docs/benchmarks.md describes its scenarios.
//
// A repetition whose end state is not the one that it has to be is an error, not a number.
package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/measure"
	"sa-controller-manager/test/must"
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
	for i, measure := range []func(context.Context){o.changes, o.rest, o.pods, o.failover} {
		before := slices.Clone(o.Report.Rows)
		if !slices.Contains(scenarios, Scenarios[i]) {
			o.Report.Missing = append(o.Report.Missing, Scenarios[i])
			continue
		}
		if err := must.Catch(func() { measure(ctx) }); err != nil {
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
}

// start returns once the program is ready: kube-controller-manager with the four controllers that sa-controller-manager
// replaces and no other, or sa-controller-manager, in mode manual unless the flags say otherwise. It is asked
// every few milliseconds, because times of some hundred are measured.
func (o *Options) start(ctx context.Context, w *world, name string, flags ...string) (*running, error) {
	flags = append([]string{"--kubeconfig=" + w.kubeconfig, "-v=0"}, flags...)
	r, begun, path := &running{name: name}, time.Now(), "/readyz"
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

// cost is what a program has cost by a moment.
type cost struct {
	at        time.Time
	cpu       float64 // seconds
	requests  float64 // lists and watches, too
	anon, max float64 // memory, MiB
}

// cost reads /proc after the metrics, the first time, and so counts one scrape in each window.
func (r *running) cost(ctx context.Context) cost {
	metrics, used, memory := must.Get(r.Metrics(ctx)), must.Get(measure.CPU(r.PID())), must.Get(measure.MemoryOf(r.PID()))
	return cost{
		time.Now(), used.Seconds(), metrics.Sum("rest_client_requests_total", nil),
		float64(memory.Anon) / 1024, float64(memory.Peak) / 1024,
	}
}

// foreignSize is that of each foreign Secret, in bytes.
const foreignSize = 10 << 10

// rest starts both programs in a cluster that has been in use, beside Secrets of others, with leader election, and ours
// with its webhook. Then nothing happens: once they have come to rest, it measures what they cost.
func (o *Options) rest(ctx context.Context) {
	onFresh(ctx, devcluster.Options{}, func(ctx context.Context, w *world) {
		o.statusf("at rest, making the objects")
		r := must.Get(o.start(ctx, w, ours))
		o.fill(ctx, w, r, "")
		must.Get(r.Stop())
		content := bytes.Repeat([]byte("0123456789abcdef"), foreignSize/16)
		must.Do(each(ctx, writers, o.Sizes.Foreign, func(ctx context.Context, i int) error {
			return w.makeSecret(ctx, bench(i%o.Sizes.Namespaces), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("foreign-%05d", i)}, Data: map[string][]byte{"content": content},
			})
		}))
		for repetition := range o.Sizes.Repetitions {
			o.statusf("at rest, %d of %d, settling for %v", repetition+1, o.Sizes.Repetitions, o.Settling)
			o.settled(ctx, w)
		}
	})
}

func (o *Options) settled(ctx context.Context, w *world) {
	port := must.Get(devcluster.FreePort())
	var all []*running
	for program, flags := range map[string][]string{kcm: nil,
		ours: {fmt.Sprintf("--webhook-port=%d", port), "--webhook-registration=url"}} {
		r := must.Get(o.replica(ctx, w, program, flags...))
		all = append(all, r)
		o.add("start", "time until ready, s", program, r.ready.Seconds())
	}
	must.Do(sleep(ctx, o.Settling))
	before := map[*running]cost{}
	for _, r := range all {
		before[r] = r.cost(ctx)
		o.add("at rest", "memory, RssAnon, MiB", r.name, before[r].anon)
		o.add("at rest", "peak memory since the start, RSS, MiB", r.name, before[r].max)
	}
	must.Do(sleep(ctx, o.Window))
	for _, r := range all {
		after := r.cost(ctx)
		minutes := after.at.Sub(before[r].at).Minutes()
		o.add("at rest", "CPU a minute, s", r.name, (after.cpu-before[r].cpu)/minutes)
		o.add("at rest", "requests a minute", r.name, (after.requests-before[r].requests)/minutes)
		must.Get(r.Stop())
	}
}
