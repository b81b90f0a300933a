// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Binary is a build of sa-controller-manager.
type Binary struct {
	// Path of the executable.
	Path string
	// Env is what the environment of its managers has besides this process's own.
	Env []string
	// Log, unless nil, receives the output of its managers as it comes.
	Log io.Writer
}

// FindBinary returns the build that the environment variable SACM_BINARY names,
// as make test does. Without it, bin/sa-controller-manager is built from the
// product's own go.mod, so that a test never runs yesterday's code.
func FindBinary(ctx context.Context) (Binary, error) {
	if path := os.Getenv("SACM_BINARY"); path != "" {
		path, err := existing(path, "SACM_BINARY names it")
		return Binary{Path: path}, err
	}
	root, err := repositoryRoot()
	if err != nil {
		return Binary{}, err
	}
	path := filepath.Join(root, "bin", productModule)
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/"+productModule)
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return Binary{}, fmt.Errorf("build %s: %w\n%s", productModule, err, output)
	}
	return Binary{Path: path}, nil
}

// Run runs a command of the binary, and returns what it prints. An error has what it prints on standard error.
func (b Binary) Run(ctx context.Context, args ...string) (stdout []byte, err error) {
	command := exec.CommandContext(ctx, b.Path, args...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	if stdout, err = command.Output(); err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout, err
}

// StartManager starts the binary beside the cluster, with the cluster's key, root
// CA and issuer, asking the cluster who may read its metrics, without leader election and webhook, and with the given flags after
// those, of which the last of several equal ones counts.
// It does not wait; Manager.Ready does. Cluster.Stop stops a manager that still runs.
func (b Binary) StartManager(c *Cluster, flags ...string) (*Manager, error) {
	return b.start(c, append([]string{
		"--leader-elect=false",
		"--service-account-private-key-file=" + c.SigningKeyFile(),
		"--root-ca-file=" + c.CAFile(),
		// Its port is fixed by default, and several managers may run at a time.
		"--webhook-port=0",
	}, flags...))
}

// StartSigner starts the binary likewise as nothing but the external signer of kube-apiserver, on the cluster's socket.
func (b Binary) StartSigner(c *Cluster, flags ...string) (*Manager, error) {
	return b.start(c, append([]string{"signer", "--external-signer-socket=" + c.SignerSocket()}, flags...))
}

func (b Binary) start(c *Cluster, flags []string) (*Manager, error) {
	const issuer = "--service-account-issuer="
	if !slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(flag, issuer) }) {
		flags = append(flags, issuer+c.Issuer())
	}
	m, err := c.startManager(productModule, b.Path, "/readyz", append([]string{
		"--authentication-kubeconfig=" + c.Kubeconfig(),
		"--authorization-kubeconfig=" + c.Kubeconfig(),
		// So that Manager.Metrics works while kube-apiserver does not.
		"--client-ca-file=" + c.ClientCAFile(),
	}, flags...), b.Env, b.Log)
	if err != nil {
		return nil, err
	}
	m.most = RestGoroutines
	return m, nil
}
