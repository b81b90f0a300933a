// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"sa-controller-manager/test/devcluster"
)

// process is one that is measured.
type process struct {
	name string
	*devcluster.Manager
}

// observation is what a process has cost by a moment.
type observation struct {
	at       time.Time
	cpu      time.Duration // user and system
	rssAnon  int           // KiB
	requests float64       // to kube-apiserver, without watches that go on
}

func observeAll(ctx context.Context, processes []process) ([]observation, error) {
	var all []observation
	for _, p := range processes {
		o, err := p.observe(ctx)
		if err != nil {
			return nil, fmt.Errorf("observe %s: %w", p.name, err)
		}
		all = append(all, o)
	}
	return all, nil
}

// observe looks into /proc after the metrics have been read, the first time, and so
// counts one scrape in each window.
func (p process) observe(ctx context.Context) (observation, error) {
	metrics, err := p.Metrics(ctx)
	if err != nil {
		return observation{}, err
	}
	cpu, err := cpuOf(p.PID())
	if err != nil {
		return observation{}, err
	}
	rss, err := rssAnonOf(p.PID())
	return observation{time.Now(), cpu, rss, metrics.Sum("rest_client_requests_total", nil)}, err
}

// cpuOf reads the fields utime and stime (proc_pid_stat(5)), which Linux counts in
// hundredths of a second. The name before them is in parentheses and may hold anything.
func cpuOf(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseCPU(string(data))
}

func parseCPU(stat string) (time.Duration, error) {
	const utime, stime = 11, 12 // counted from the field behind the name
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime {
		return 0, fmt.Errorf("read the CPU time from %q", stat)
	}
	user, err1 := strconv.Atoi(fields[utime])
	system, err2 := strconv.Atoi(fields[stime])
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("read the CPU time from %q", stat)
	}
	return time.Duration(user+system) * 10 * time.Millisecond, nil
}

var rssAnon = regexp.MustCompile(`(?m)^RssAnon:\s+(\d+) kB$`)

// rssAnonOf reads the memory that is the process's own and in RAM, in KiB
// (proc_pid_status(5)): pages of the binary do not count.
func rssAnonOf(pid int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	match := rssAnon.FindSubmatch(data)
	if match == nil {
		return 0, fmt.Errorf("/proc/%d/status has no RssAnon", pid)
	}
	return strconv.Atoi(string(match[1]))
}

func printTable(out io.Writer, processes []process, before, after []observation) error {
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "PROCESS\tCPU PER MINUTE\tRSSANON\tREQUESTS PER MINUTE")
	for i, p := range processes {
		minutes := after[i].at.Sub(before[i].at).Minutes()
		cpu := time.Duration(float64(after[i].cpu-before[i].cpu) / minutes)
		fmt.Fprintf(table, "%s\t%.2f s\t%.1f MiB\t%.1f\n", p.name, cpu.Seconds(), float64(after[i].rssAnon)/1024, (after[i].requests-before[i].requests)/minutes)
	}
	return table.Flush()
}
