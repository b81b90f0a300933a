// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sa-controller-manager/test/integration/testcluster"
)

// refuse runs the binary, which must exit with code 1, and returns its output.
func refuse(t *testing.T, args ...string) string {
	t.Helper()
	binary := testcluster.Binary(t)
	cmd := exec.CommandContext(t.Context(), binary.Path, args...)
	// As on a machine outside of any cluster.
	cmd.Env = []string{"GORACE=" + os.Getenv("GORACE")}
	output, err := cmd.CombinedOutput()
	testcluster.Leaks.Add("output of "+t.Name(), string(output))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit status 1; it printed:\n%s", err, output)
	}
	return string(output)
}

// TestClusterIsNotThereYet covers a start before kube-apiserver's.
func TestClusterIsNotThereYet(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.StartManager(t, "--kubeconfig="+testcluster.UnreachableKubeconfig(t))
	m.ExpectErrors = true
	const line = "Failed to connect to the API server"
	testcluster.Poll(t, "await the second try", func() error {
		if strings.Count(m.Logs(), line) < 2 {
			return errors.New("it has not been logged")
		}
		return nil
	})
	testcluster.ExpectContains(t, m.Logs(), "retryIn", "127.0.0.1:1")
	_, err := m.Get(t.Context(), "/readyz")
	if !testcluster.HasStatus(err, 503) {
		t.Fatalf("/readyz: %v, want status 503", err)
	}
	testcluster.ExpectContains(t, err.Error(), "[-]caches failed", "namespaces", "serviceaccounts", "secrets (type kubernetes.io/service-account-token)")
	for _, path := range []string{"/livez", "/healthz"} {
		if _, err := m.Get(t.Context(), path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	m.Shutdown(t) // and that ends it in time, with code 0
}
