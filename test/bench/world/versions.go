// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/devcluster"
)

// NewReport is one without results, of this machine and these binaries.
func NewReport(ctx context.Context, name string, ours devcluster.Binary, sizes map[string]int) (*result.Report, error) {
	own, err := firstLine(ctx, ours.Path)
	if err != nil {
		return nil, err
	}
	versions := []string{"sa-controller-manager " + own}
	for _, name := range []string{"kube-controller-manager", "kube-apiserver", "etcd"} {
		path, err := devcluster.ControlPlaneBinary(name)
		if err != nil {
			return nil, err
		}
		version, err := firstLine(ctx, path)
		if err != nil {
			return nil, err
		}
		versions = append(versions, name+" "+version)
	}
	return &result.Report{Name: name, Machine: result.ThisMachine(time.Now()), Versions: versions, Conditions: conditions(), Sizes: sizes}, nil
}

// conditions are those of every measurement.
func conditions() []string {
	return []string{
		"etcd, kube-apiserver, the program that is measured and the clients share the machine; etcd keeps its data on " +
			filesystem() + " and does not wait for it (`--unsafe-no-fsync`), which is the same for all",
		fmt.Sprintf("%d clients make the objects, without a limit of their own", Writers),
		"Every program is `system:masters` with a client certificate, so that no queue of priority and fairness is in between; " +
			"same key, same root CA, log level 0; leader election is off where one process runs",
	}
}

// filesystem says on what control planes keep their data.
func filesystem() string {
	var stat unix.Statfs_t
	if err := unix.Statfs(os.TempDir(), &stat); err == nil && stat.Type == unix.TMPFS_MAGIC {
		return "a tmpfs"
	}
	return "a disk"
}

// firstLine is the last word of it: "Kubernetes v1.2.3", "etcd Version: 3.4.5".
func firstLine(ctx context.Context, path string) (string, error) {
	output, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	line, _, _ := strings.Cut(string(output), "\n")
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return "", fmt.Errorf("%s --version prints nothing", path)
	}
	return fields[len(fields)-1], nil
}
