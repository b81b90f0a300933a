// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sa-controller-manager/signing/signertest"

	"sa-controller-manager/test/await"
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

// TestClusterIsNotThereYet covers a start before kube-apiserver's: probes, system:masters and the
// signer are answered without it.
func TestClusterIsNotThereYet(t *testing.T) {
	c := testcluster.Shared(t)
	nowhere, socket := testcluster.UnreachableKubeconfig(t), filepath.Join(testcluster.Dir(), "alone.sock")
	m := c.StartManager(t, "--kubeconfig="+nowhere, "--authentication-kubeconfig="+nowhere, "--authorization-kubeconfig="+nowhere,
		"--external-signer-socket="+socket, "--leader-elect=true")
	m.ExpectErrors = true
	const line = "Failed to connect to kube-apiserver"
	testcluster.Poll(t, "await the second try", func() error {
		if strings.Count(m.Logs(), line) < 2 {
			return errors.New("it has not been logged")
		}
		return nil
	})
	testcluster.ExpectContains(t, m.Logs(), "retryIn", "127.0.0.1:1")
	before := time.Now()
	for path, want := range map[string]int{"/livez": 200, "/healthz": 200, "/readyz": 503} {
		got := ask(t, m.URL(), path, &rest.Config{})
		if got.status != want {
			t.Errorf("%s answers %d, want %d: %s", path, got.status, want, got.body)
		}
		if path == "/readyz" {
			testcluster.ExpectContains(t, got.body, "[-]caches failed", "namespaces", "serviceaccounts",
				"secrets (type kubernetes.io/service-account-token)")
		}
	}
	await.Within(t, "health", time.Since(before), time.Second)
	if got := ask(t, m.URL(), "/metrics", c.Config()); got.status != http.StatusOK {
		t.Errorf("system:masters gets %d of /metrics, want 200 without a SubjectAccessReview", got.status)
	}
	remote, err := signertest.Connect(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = remote.Close() }()
	if _, err := remote.Fetch(testcluster.Context(t)); err != nil {
		t.Errorf("FetchKeys without an API server: %v", err)
	}
	m.Shutdown(t) // and that ends it in time, with code 0
}
