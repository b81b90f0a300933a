// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package measure reads what processes have cost from /proc, of Linux only.
package measure

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// CPU is the processor time that a process has used, user and system. Linux counts it in
// hundredths of a second: the fields utime and stime of proc_pid_stat(5).
func CPU(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseCPU(string(data))
}

// parseCPU counts from behind the name, which is in parentheses and may hold anything.
func parseCPU(stat string) (time.Duration, error) {
	const utime, stime = 11, 12
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

// Memory is what a process has in RAM, in KiB (proc_pid_status(5)).
type Memory struct {
	Anon int // the process's own alone
	Peak int // the highest with pages of the binary
}

// MemoryOf reads it now.
func MemoryOf(pid int) (Memory, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, err
	}
	return parseMemory(string(data))
}

var statusLine = regexp.MustCompile(`(?m)^(RssAnon|VmHWM):\s+(\d+) kB$`)

func parseMemory(status string) (Memory, error) {
	found := map[string]int{}
	for _, match := range statusLine.FindAllStringSubmatch(status, -1) {
		kib, err := strconv.Atoi(match[2])
		if err != nil {
			return Memory{}, err
		}
		found[match[1]] = kib
	}
	if len(found) != 2 {
		return Memory{}, fmt.Errorf("read the memory of a process: of RssAnon and VmHWM there are %d", len(found))
	}
	return Memory{Anon: found["RssAnon"], Peak: found["VmHWM"]}, nil
}
