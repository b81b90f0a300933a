// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const productModule = "sa-controller-manager"

// repositoryRoot is the directory of the product's go.mod, searched from the
// working directory upwards: go test runs in the directory of its package, the
// commands wherever make was called.
func repositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte("module "+productModule+"\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no directory from %s upwards holds the go.mod of %s", start, productModule)
		}
	}
}

// ControlPlaneBinary is the path of a Kubernetes or etcd binary: in
// KUBEBUILDER_ASSETS if that is set, else where make control-plane puts it.
func ControlPlaneBinary(name string) (string, error) {
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		return existing(filepath.Join(assets, name), "KUBEBUILDER_ASSETS names that directory")
	}
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	return existing(filepath.Join(root, "bin", "control-plane", name), "make control-plane builds it")
}

// APIServerMinor is 37 if kube-apiserver is some v1.37.
func APIServerMinor(ctx context.Context) (int, error) {
	path, err := ControlPlaneBinary("kube-apiserver")
	if err != nil {
		return 0, err
	}
	version, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("%s --version: %w", path, err)
	}
	var minor int
	if _, err := fmt.Sscanf(string(version), "Kubernetes v1.%d.", &minor); err != nil {
		return 0, fmt.Errorf("%s --version: %q: %w", path, version, err)
	}
	return minor, nil
}

func existing(path, hint string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find %s (%s): %w", filepath.Base(path), hint, err)
	}
	return path, nil
}
