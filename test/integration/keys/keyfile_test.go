// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// newKey writes a key that kube-apiserver does not have and returns its path.
func newKey(t *testing.T, keyType devcluster.KeyType) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "new.key")
	testutil.Must(t, devcluster.WriteSigningKey(path, keyType))
	testcluster.Leaks.AddKeyFile(t, path)
	return path
}

// TestBadKeyFileIsRefused covers what a changed file may hold by mistake.
func TestBadKeyFileIsRefused(t *testing.T) {
	c := testcluster.Shared(t)
	good := testcluster.ReadFile(t, c.SigningKeyFile())
	file, ca := testcluster.NewKeyFile(t, c.SigningKeyFile()), testcluster.NewKeyFile(t, c.CAFile())
	m := c.Manage(t, "--token-secrets=manual", file.Flag(), "--root-ca-file="+ca.Path)
	m.ExpectErrors = true // each refusal is logged as an error
	account := c.CreateAccount(t, c.Namespace(t), "someone")
	m.AwaitProbe(t, "accepted")

	contents := []struct {
		name    string
		content []byte
		found   string
	}{
		{"Garbage", []byte("this is no key"), "no PEM block"},
		{"Empty", nil, "the file is empty"},
		{"Certificate", testcluster.ReadFile(t, c.CAFile()), "a certificate"},
		{"HalfAKey", good[:len(good)/2], "a damaged or cut off PEM block"},
	}
	for i, bad := range contents {
		file.Replace(t, bad.content)
		m.AwaitRefusals(t, "service-account-private-key-file", i+1)
		if err := m.AwaitLog(testcluster.Context(t), bad.found); err != nil {
			t.Errorf("%s: %v", bad.name, err)
		}
		c.AwaitWarning(t, testcluster.AboutProcess("FileReloadRefused"), bad.found)
		c.ExpectAccepted(t, c.IssueSignedBy(t, account, testcluster.KeyIDOfPEM(t, good)), account)
		if _, err := m.Get(t.Context(), "/readyz"); err != nil {
			t.Errorf("%s: %v", bad.name, err)
		}
	}

	// The same content again is not refused again. Two changes of another file, one after the other,
	// take longer than a reload of this one.
	file.Replace(t, contents[len(contents)-1].content)
	for i := range 2 {
		ca.Replace(t, fmt.Appendf(nil, "no certificate %d", i))
		m.AwaitRefusals(t, "root-ca-file", i+1)
	}
	const line = `"Failed to reload file, keeping its previous content"`
	if n := strings.Count(m.Logs(), line); n != len(contents)+2 {
		t.Errorf("the log has %d lines %s, want %d", n, line, len(contents)+2)
	}

	testutil.Must(t, os.Remove(file.Path))
	m.AwaitRefusals(t, "service-account-private-key-file", len(contents)+1)
	refused := devcluster.Labels{"flag": "service-account-private-key-file"}
	m.AwaitMetric(t, "sacm_file_refused", refused, 1)
	file.Replace(t, good)
	m.AwaitMetric(t, "sacm_file_refused", refused, 0)
	c.ExpectAccepted(t, c.IssueSignedBy(t, account, testcluster.KeyIDOfPEM(t, good)), account)
	if n := m.Metric(t, "sacm_file_reloads_total", devcluster.Labels{"result": "accepted"}); n != 0 {
		t.Errorf("%v changes were accepted, want none: the key in use came back", n)
	}
}

// TestNewKeyWaitsForTheAPIServer covers a file that is changed too early: a key that
// kube-apiserver does not know does not sign, until kube-apiserver is restarted
// with it.
func TestNewKeyWaitsForTheAPIServer(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, devcluster.Options{})
	file := testcluster.NewKeyFile(t, c.SigningKeyFile())
	m := c.Manage(t, "--token-secrets=manual", file.Flag())
	m.ExpectErrors = true // kube-apiserver is away for a while
	account := c.CreateAccount(t, c.Namespace(t), "someone")
	path := newKey(t, devcluster.RSA)
	former, next := testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, file.Path)), testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, path))
	m.AwaitProbe(t, "accepted")

	file.Replace(t, testcluster.ReadFile(t, path))
	m.AwaitMetric(t, "sacm_signing_key", devcluster.Labels{"key_id": next, "state": "next"}, 1)
	m.AwaitProbe(t, "refused")
	c.AwaitWarning(t, testcluster.AboutProcess("SigningKeyWaits"), next)
	awaitReadyDetail(t, m, former+" signs", "the new key "+next+" waits")
	before := c.IssueSignedBy(t, account, former)
	c.ExpectAccepted(t, before, account)

	c.SetAPIServerFlag("service-account-key-file", c.SigningKeyFile(), path)
	// After SIGTERM kube-apiserver would wait a minute for its watches to end.
	testutil.Must(t, errors.Join(c.KillAPIServer(), c.StartAPIServer(t.Context())))
	m.AwaitSigner(t, next)
	c.AwaitEvent(t, testcluster.AboutProcess("SigningKeyActivated"), next)
	awaitReadyDetail(t, m, next+" signs")
	c.ExpectAccepted(t, c.IssueSignedBy(t, account, next), account)
	c.ExpectAccepted(t, before, account)
	now := c.GetSecret(t, before.Namespace, before.Name)
	if testcluster.KeyIDOf(t, now) != former {
		t.Error("a token of the previous key was issued again")
	}
}

// awaitReadyDetail returns once the manager is ready and says each of these.
func awaitReadyDetail(t *testing.T, m *testcluster.Manager, details ...string) {
	t.Helper()
	ctx := testcluster.Context(t)
	testcluster.Poll(t, "await a detail of /readyz", func() error {
		text, err := m.Get(ctx, "/readyz?verbose")
		if err != nil {
			return err
		}
		for _, detail := range details {
			if !strings.Contains(text, detail) {
				return fmt.Errorf("no %q in:\n%s", detail, text)
			}
		}
		return nil
	})
}

// TestIssuerIsLookedUp covers a manager without an issuer flag: it reads
// kube-apiserver's discovery document. Without an issuer no key could be probed.
func TestIssuerIsLookedUp(t *testing.T) {
	c := testcluster.Shared(t)
	binary := testcluster.Binary(t)
	file := testcluster.NewKeyFile(t, c.SigningKeyFile())
	// devcluster always gives the issuer.
	cmd := exec.CommandContext(t.Context(), binary.Path, "-v=10", "--kubeconfig="+c.Kubeconfig(), file.Flag(),
		"--secure-port=0", "--webhook-port=0", "--token-secrets=manual", "--leader-elect-resource-name=issuer")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	testutil.Must(t, cmd.Start())
	defer func() {
		if err := errors.Join(cmd.Cancel(), cmd.Wait()); err != nil {
			t.Errorf("end the manager: %v", err)
		}
		testcluster.Leaks.Add("log of "+t.Name(), output.String())
	}()
	c.AwaitLease(t, "issuer", func(holder string) bool { return holder != "" })
	file.Replace(t, testcluster.ReadFile(t, testcluster.ECDSAKeyFile()))
	c.AwaitEvent(t, testcluster.AboutObject("Lease", metav1.NamespaceSystem, "issuer", "SigningKeyActivated"),
		testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, testcluster.ECDSAKeyFile())))
}
