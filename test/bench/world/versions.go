// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"sa-controller-manager/test/devcluster"
)

// Conditions are those of every measurement.
func Conditions() []string {
	return []string{
		"etcd, kube-apiserver, the program that is measured and the clients share the machine; etcd keeps its data on " +
			Filesystem() + " and does not wait for it (`--unsafe-no-fsync`), which is the same for all",
		fmt.Sprintf("%d clients make the objects, without a limit of their own", Writers),
		"Every program is `system:masters` with a client certificate, so that no queue of priority and fairness is in between; " +
			"same key, same root CA, leader election off, log level 0",
	}
}

// Versions are those of the binaries.
func Versions(ctx context.Context, ours devcluster.Binary) ([]string, error) {
	own, err := firstLine(ctx, ours.Path)
	if err != nil {
		return nil, err
	}
	all := []string{"sa-controller-manager " + own}
	for _, name := range []string{"kube-controller-manager", "kube-apiserver", "etcd"} {
		path, err := devcluster.ControlPlaneBinary(name)
		if err != nil {
			return nil, err
		}
		version, err := firstLine(ctx, path)
		if err != nil {
			return nil, err
		}
		all = append(all, name+" "+version)
	}
	return all, nil
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
