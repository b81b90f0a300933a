// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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

var modelName = regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`)

// ThisMachine describes the machine that it runs on. What the machine does not tell is
// left empty.
func ThisMachine(now time.Time) Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Date: now.UTC().Format(time.DateOnly), CPU: runtime.GOARCH}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if match := modelName.FindSubmatch(info); match != nil {
			m.CPU = strings.TrimSpace(string(match[1]))
		}
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		m.Memory = fmt.Sprintf("%d GiB", (info.Totalram*uint64(info.Unit)+1<<29)>>30)
	}
	return m
}

// String is the machine line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s; Linux %s; %s; %s", m.CPU, m.Cores, m.Memory, m.Kernel, m.Go, m.Date)
}
