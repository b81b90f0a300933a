// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"
	"sa-controller-manager/cmd/sa-controller-manager/commands"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/identity"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/signertest"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// refreshVariable makes this test binary run the product and sets how often client-go reloads the
// client certificate. The default is five minutes.
const refreshVariable = "SACM_TEST_CERTIFICATE_REFRESH"

func product(period string) int {
	refresh, err := time.ParseDuration(period)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	transport.CertCallbackRefreshDuration = refresh
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return commands.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// identityOf returns the configuration with which a static pod gets a certificate of the cluster's CA.
func identityOf(t *testing.T, c *testcluster.ControlPlane, validity time.Duration) identity.Config {
	t.Helper()
	key, err := c.ClientCAKey()
	testutil.Must(t, err)
	pki := t.TempDir()
	for name, content := range map[string][]byte{"ca.crt": testcluster.ReadFile(t, c.ClientCAFile()), "ca.key": key} {
		testutil.Must(t, os.WriteFile(filepath.Join(pki, name), content, 0o600))
	}
	testcluster.Leaks.AddKey(key)
	own := identity.NewConfig()
	own.CertDir, own.Dir, own.From, own.Validity = pki, t.TempDir(), c.Kubeconfig(), validity
	own.ApplyPermissions, own.CreateSecrets = true, true // --token-secrets=auto
	return own
}

func ensure(t *testing.T, own identity.Config) (kubeconfig string) {
	t.Helper()
	testutil.Must(t, identity.Ensure(t.Context(), own))
	return filepath.Join(own.Dir, "kubeconfig")
}

// TestCertificateIsRenewedUnderLoad lives through the end of a client certificate that was renewed
// before, as a manager with the permissions of a static pod and nothing more. The connections are
// closed when the renewed one is taken; no account misses its Secret for it, and the Lease is kept.
func TestCertificateIsRenewedUnderLoad(t *testing.T) {
	await.Long(t)
	c := testcluster.New(t, devcluster.Options{})
	own := identityOf(t, c, 15*time.Second)
	kubeconfig := ensure(t, own)
	running, err := devcluster.Binary{Path: os.Args[0], Env: []string{refreshVariable + "=500ms"}}.StartManager(c.Cluster,
		"-v=10", "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--token-secrets=auto", "--leader-elect=true")
	testutil.Must(t, err)
	m := c.Adopt(t, running)
	m.ExpectErrors = true // the log may say which connections were closed
	m.AwaitReady(t)
	m.ExpectLog(t, testcluster.LeadsMessage)
	const metric = "sacm_client_certificate_expiration_timestamp_seconds"
	end := m.Metric(t, metric, nil)
	first := time.Unix(int64(end), 0)
	leases := c.API.CoordinationV1().Leases("kube-system")
	before, err := leases.Get(t.Context(), "sa-controller-manager", metav1.GetOptions{})
	testutil.Must(t, err)

	var load sync.WaitGroup
	namespace := c.Namespace(t)
	for worker := range 4 {
		load.Go(func() {
			for i := 0; time.Now().Before(first.Add(3 * time.Second)); i++ {
				name := fmt.Sprintf("worker-%d-%d", worker, i)
				c.CreateAccount(t, namespace, name)
				c.AwaitAutoSecret(t, namespace, name)
			}
		})
	}
	own.Validity = time.Hour
	ensure(t, own)
	m.AwaitMetric(t, metric, nil, end+1)
	load.Wait()

	if !strings.Contains(m.Logs(), "Certificate rotation detected") {
		t.Error("the connections with the previous certificate were not closed")
	}
	if strings.Contains(m.Logs(), "Unauthorized") {
		t.Error("kube-apiserver has refused the certificate")
	}
	after, err := leases.Get(t.Context(), "sa-controller-manager", metav1.GetOptions{})
	testutil.Must(t, err)
	if *after.Spec.HolderIdentity != *before.Spec.HolderIdentity || *after.Spec.LeaseTransitions != *before.Spec.LeaseTransitions ||
		strings.Count(m.Logs(), "Stopped controllers") > 0 {
		t.Errorf("the Lease was lost: %v, then %v", before.Spec, after.Spec)
	}
	// The secure port asks who may read metrics with the same certificate.
	_, unprivileged, err := c.Identity("unprivileged")
	testutil.Must(t, err)
	if got := ask(t, m.URL(), "/metrics", unprivileged); got.status != http.StatusForbidden {
		t.Errorf("/metrics answers %d to a user without permission, want 403", got.status)
	}
	if got := ask(t, m.URL(), "/readyz?verbose", unprivileged); got.status != http.StatusOK ||
		!strings.Contains(got.body, "[+]client-certificate ok: expires at 20") {
		t.Errorf("/readyz answers %d: %s", got.status, got.body)
	}
}

// TestSignerNeedsNoKubeconfig has the socket served, and the process alive, while no kubeconfig can
// be used; and everything else work without a restart once one can.
func TestSignerNeedsNoKubeconfig(t *testing.T) {
	c := testcluster.New(t, devcluster.Options{})
	own := identityOf(t, c, time.Hour)
	kubeconfig, pair := filepath.Join(own.Dir, "kubeconfig"), filepath.Join(own.Dir, "client.pem")
	socket := filepath.Join(testcluster.Dir(), "early.sock")
	m := c.StartManager(t, "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--token-secrets=auto", "--external-signer-socket="+socket)
	m.ExpectErrors = true
	remote, err := signertest.Connect(socket)
	testutil.Must(t, err)
	defer func() { _ = remote.Close() }()
	write := func(path string, content []byte) {
		t.Helper()
		testutil.Must(t, os.WriteFile(path, content, 0o600))
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
	write(kubeconfig, []byte("this: [is not"))
	works("Damaged", "error loading config file")
	write(pair, []byte("half of it"))
	write(kubeconfig, []byte(strings.NewReplacer("client-certificate-data:", "client-certificate: client.pem #", "client-key-data:",
		"client-key: client.pem #").
		Replace(string(testcluster.ReadFile(t, c.Kubeconfig())))))
	works("DamagedCertificate", "want PEM of a certificate")
	ensure(t, own)
	m.AwaitReady(t)
	if _, err := remote.Fetch(testcluster.Context(t)); err != nil {
		t.Errorf("the socket was given up on the way: %v", err)
	}
	c.AwaitAutoSecret(t, c.Namespace(t), "default")
	m.ExpectLog(t, "serving only the external signer")
}
