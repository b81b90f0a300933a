// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package overload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sa-controller-manager/test/faults/checker"
)

// ProcessorTime is what the machine's processors have spent, in the kernel's unit (proc(5),
// /proc/stat).
type ProcessorTime struct {
	all int
	// used is by programs, and by those of other machines on the same hardware. What the kernel
	// does for the network on nobody's account is not in it.
	used int
	// own is of this process and its children.
	own int
}

// ReadProcessorTime reads it as of now.
func ReadProcessorTime() (ProcessorTime, error) {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return ProcessorTime{}, err
	}
	now, err := machineTime(string(content))
	if err != nil {
		return ProcessorTime{}, err
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return ProcessorTime{}, err
	}
	for _, stat := range stats {
		content, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended since
		}
		if took, err := ownTime(string(content), os.Getpid()); err == nil {
			now.own += took
		}
	}
	return now, nil
}

// machineTime reads the first line of /proc/stat: user, nice, system, idle, iowait, irq,
// softirq and steal.
func machineTime(content string) (ProcessorTime, error) {
	line, _, _ := strings.Cut(content, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return ProcessorTime{}, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var t ProcessorTime
	for i, field := range fields[1:9] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return ProcessorTime{}, fmt.Errorf("/proc/stat: %w", err)
		}
		t.all += n
		if i < 3 || i == 7 {
			t.used += n
		}
	}
	return t, nil
}

// ownTime reads a process's line: what it and those that it has waited for have taken, if it
// is the given process or a child of that (proc(5), /proc/pid/stat), and zero for others.
func ownTime(stat string, pid int) (int, error) {
	head, tail, found := checker.CutLast(stat, ") ") // a name may hold anything
	fields := strings.Fields(tail)
	if !found || len(fields) < 15 {
		return 0, errors.New("no line of a process")
	}
	own := strconv.Itoa(pid)
	if fields[1] != own && !strings.HasPrefix(head, own+" (") {
		return 0, nil
	}
	sum := 0
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("the line of a process: %w", err)
		}
		sum += n
	}
	return sum, nil
}

// OthersSince is which part of the machine's time other programs have taken since.
func (t ProcessorTime) OthersSince(before ProcessorTime) float64 {
	all := t.all - before.all
	if all <= 0 {
		return 0
	}
	return max(0, float64(t.used-before.used-(t.own-before.own))/float64(all))
}
