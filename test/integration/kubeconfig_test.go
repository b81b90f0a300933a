// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/signertest"

	"sa-controller-manager/test/integration/testcluster"
)

// TestSignerNeedsNoKubeconfig has the socket served, and the process alive, while no kubeconfig can
// be used; and everything else work without a restart once one can.
func TestSignerNeedsNoKubeconfig(t *testing.T) {
	c := testcluster.Shared(t)
	dir, good := t.TempDir(), string(testcluster.ReadFile(t, c.Kubeconfig()))
	kubeconfig, pair := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "client.pem")
	socket := filepath.Join(testcluster.Dir(), "early.sock")
	m := c.StartManager(t, "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--token-secrets=auto", "--external-signer-socket="+socket)
	m.ExpectErrors = true
	remote, err := signertest.Connect(socket)
	testutil.Must(t, err)
	defer func() { _ = remote.Close() }()
	write := func(path, content string) {
		t.Helper()
		testutil.Must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	works := func(state, complaint string) {
		t.Helper()
		testcluster.Poll(t, state, func() error {
			got, err := request(t.Context(), m.URL(), "/readyz", c.Config())
			if err == nil && (got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, complaint)) {
				err = fmt.Errorf("/readyz answers %d: %s, want %q", got.status, got.body, complaint)
			}
			return err
		})
		if got := ask(t, m.URL(), "/livez", c.Config()); got.status != http.StatusOK {
			t.Errorf("%s: /livez answers %d, and the kubelet ends the process: %s", state, got.status, got.body)
		}
		if _, err := remote.Fetch(testcluster.Context(t)); err != nil {
			t.Errorf("%s: FetchKeys: %v", state, err)
		}
	}
	works("Missing", "no such file or directory")
	write(kubeconfig, "this: [is not")
	works("Damaged", "error loading config file")
	write(pair, "half of it")
	write(kubeconfig, strings.NewReplacer("client-certificate-data:", "client-certificate: client.pem #", "client-key-data:",
		"client-key: client.pem #").Replace(good))
	works("DamagedCertificate", "want PEM of a certificate")
	write(kubeconfig, good)
	m.AwaitReady(t)
	if _, err := remote.Fetch(testcluster.Context(t)); err != nil {
		t.Errorf("the socket was given up on the way: %v", err)
	}
	c.AwaitAutoSecret(t, c.Namespace(t), "default")
	m.ExpectLog(t, "serving only the external signer")
}
