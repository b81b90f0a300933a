// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package measure reads what processes have cost from /proc, of Linux only.
package measure

import (
	"time"

	"github.com/prometheus/procfs"
)

// CPU is the processor time that a process has used, user and system. Linux counts it in
// hundredths of a second.
func CPU(pid int) (time.Duration, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}

// Memory is what a process has in RAM, in KiB (proc_pid_status(5)).
type Memory struct {
	Anon int // the process's own alone
	Peak int // the highest with pages of the binary
}

// MemoryOf reads it now.
func MemoryOf(pid int) (Memory, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return Memory{}, err
	}
	status, err := process.NewStatus()
	return Memory{Anon: int(status.RssAnon >> 10), Peak: int(status.VmHWM >> 10)}, err
}
