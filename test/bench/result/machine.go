// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// Machine is where and when something was measured.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Date   string `json:"date"`
}

// ThisMachine describes the machine that it runs on. What the machine does not tell is
// left empty.
func ThisMachine(now time.Time) Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Date: now.UTC().Format(time.DateOnly), CPU: runtime.GOARCH}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(release))
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return m
	}
	if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 {
		m.CPU = cmp.Or(cpus[0].ModelName, m.CPU)
	}
	if memory, err := proc.Meminfo(); err == nil && memory.MemTotal != nil {
		m.Memory = fmt.Sprintf("%d GiB", (*memory.MemTotal+1<<19)>>20)
	}
	return m
}

// String is the machine line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s; Linux %s; %s; %s", m.CPU, m.Cores, m.Memory, m.Kernel, m.Go, m.Date)
}
