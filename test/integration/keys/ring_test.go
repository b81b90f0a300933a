// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// ringFile is a key ring that a test rotates with the commands.
type ringFile struct {
	path    string
	cluster *testcluster.ControlPlane
}

// newRingFile begins with a key of the cluster.
func newRingFile(t *testing.T, c *testcluster.ControlPlane, from string) ringFile {
	t.Helper()
	d := ringFile{path: filepath.Join(t.TempDir(), "keys", "ring.json"), cluster: c}
	d.must(t, "init", "--from-private-key-file="+from)
	return d
}

// flags are for a manager, which devcluster gives a key file otherwise.
func (d ringFile) flags() []string {
	return []string{"--token-secrets=manual", "--service-account-private-key-file=", d.flag()}
}

func (d ringFile) flag() string { return "--service-account-key-ring=" + d.path }

// keyRing is what the commands print for programs.
type keyRing struct {
	Generation      int64
	Phase, NextStep string
	Findings        []struct{ Code string }
	Keys            []struct {
		ID, Algorithm, Role, Accepted string
		Secrets                       *int
	}
	Pruned []struct {
		KeyID, Reason string
		Pruned        bool
	}
}

// role is the ID of the key that has this role, of the last one if several have.
func (r keyRing) role(t *testing.T, role string) string {
	t.Helper()
	id := ""
	for _, key := range r.Keys {
		if key.Role == role {
			id = key.ID
		}
	}
	if id == "" {
		t.Fatalf("no key is %s in %+v", role, r)
	}
	return id
}

// run runs "keys" with the given words and returns what it printed and its exit code.
func (d ringFile) run(t *testing.T, words ...string) (ring keyRing, printed string, code int) {
	t.Helper()
	got := testcluster.Run(t, "", append(append([]string{"keys"}, words...), d.flag(), "--kubeconfig="+d.cluster.Kubeconfig(), "-o=json")...)
	if got.Stdout != "" {
		if err := json.Unmarshal([]byte(got.Stdout), &ring); err != nil {
			t.Fatalf("keys %v: %v in\n%s", words, err, got.Stdout+got.Stderr)
		}
	}
	d.watchCanary(t)
	return ring, got.Stdout + got.Stderr, got.Code
}

// watchCanary adds every private key of the ring to the canary.
func (d ringFile) watchCanary(t *testing.T) {
	t.Helper()
	var ring struct{ Keys []struct{ PEM string } }
	if data, err := os.ReadFile(d.path); err == nil {
		if err := json.Unmarshal(data, &ring); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range ring.Keys {
		if strings.Contains(key.PEM, "PRIVATE KEY") {
			testcluster.Leaks.AddKey([]byte(key.PEM))
		}
	}
}

func (d ringFile) must(t *testing.T, words ...string) keyRing {
	t.Helper()
	ring, printed, code := d.run(t, words...)
	if code != 0 {
		t.Fatalf("keys %v: exit code %d:\n%s", words, code, printed)
	}
	return ring
}

// refuses checks that a command exits with code 1 and prints the sentence.
func (d ringFile) refuses(t *testing.T, sentence string, words ...string) {
	t.Helper()
	if _, printed, code := d.run(t, words...); code != 1 || !strings.Contains(printed, sentence) {
		t.Errorf("keys %v: exit code %d, want 1 and %q:\n%s", words, code, sentence, printed)
	}
}

// publicKeys writes them to a file for kube-apiserver, as an operator does.
func (d ringFile) publicKeys(t *testing.T) string {
	t.Helper()
	pem := testcluster.Run(t, "", "keys", "list", d.flag(), "-o=pem").ExpectCode(t, 0).Stdout
	return testcluster.WriteFile(t, "sa.pub", []byte(pem))
}

// killWaiting runs "keys" with words that publish a key and wait, and kills it while it waits.
func (d ringFile) killWaiting(t *testing.T, words ...string) {
	t.Helper()
	binary := testcluster.Binary(t)
	cmd := exec.CommandContext(testcluster.Context(t), binary.Path, append(append([]string{"keys"}, words...), d.flag())...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testcluster.Poll(t, "await a published key", func() error {
		if state := testcluster.ReadFile(t, d.path); !bytes.Contains(state, []byte(`"phase": "published"`)) {
			return fmt.Errorf("the state is:\n%s", state)
		}
		return nil
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the command did not wait")
	}
}

// TestRotateARing is a whole rotation from RSA to ECDSA, back, and again, with a kube-apiserver that must be
// restarted once for each new key, and a manager that is never restarted.
func TestRotateARing(t *testing.T) {
	await.Long(t)
	t.Parallel()
	c := testcluster.New(t, devcluster.Options{})
	d := newRingFile(t, c, c.SigningKeyFile())
	m := c.Manage(t, d.flags()...)
	m.ExpectErrors = true // kube-apiserver is away for a while
	account := c.CreateAccount(t, c.Namespace(t), "someone")
	rsa := testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, c.SigningKeyFile()))
	held := []*corev1.Secret{c.IssueSignedBy(t, account, rsa)}
	stillGood := func() {
		t.Helper()
		for _, secret := range held {
			c.ExpectAccepted(t, secret, account)
			if testcluster.KeyIDOf(t, c.GetSecret(t, secret.Namespace, secret.Name)) != testcluster.KeyIDOf(t, secret) {
				t.Errorf("the token of secret %q was replaced", secret.Name)
			}
		}
	}

	ring := d.must(t, "rotate", "start", "--algorithm=P-256", "--cache-age=0s")
	ecdsa := ring.role(t, "next")
	m.AwaitMetric(t, "sacm_signing_key", devcluster.Labels{"key_id": ecdsa, "state": "next"}, 1)
	held = append(held, c.IssueSignedBy(t, account, rsa))
	d.refuses(t, "cannot sign yet: the apiserver refuses its tokens", "rotate", "activate")
	if status, printed, code := d.run(t, "rotate", "status"); code != 2 || len(status.Findings) != 1 || status.Findings[0].Code != "key-not-accepted" || status.Phase != "published" {
		t.Errorf("status of a key that is not accepted: exit code %d:\n%s", code, printed)
	}

	c.SetAPIServerFlag("service-account-key-file", c.SigningKeyFile(), d.publicKeys(t))
	// After SIGTERM kube-apiserver would wait a minute for its watches to end.
	if err := errors.Join(c.KillAPIServer(), c.StartAPIServer(t.Context())); err != nil {
		t.Fatal(err)
	}
	d.must(t, "rotate", "activate", "--apiserver="+c.Config().Host)
	m.AwaitSigner(t, ecdsa)
	awaitReadyDetail(t, m, ecdsa+" signs", "a rotation to key "+ecdsa+" is activated")
	c.AwaitEvent(t, testcluster.AboutProcess("SigningKeyActivated"), ecdsa)
	held = append(held, c.IssueSignedBy(t, account, ecdsa))
	stillGood()
	d.must(t, "rotate", "complete")
	stillGood()

	ring = d.must(t, "rollback")
	m.AwaitSigner(t, rsa)
	if got := ring.role(t, "active"); got != rsa {
		t.Errorf("key %s signs after the rollback", got)
	}
	held = append(held, c.IssueSignedBy(t, account, rsa))
	stillGood()
	d.refuses(t, "was rolled back at", "rollback")

	// Again, with a key that kube-apiserver gets while the command waits.
	third := d.must(t, "rotate", "start", "--algorithm=P-256", "--cache-age=0s").role(t, "next")
	c.SetAPIServerFlag("service-account-key-file", c.SigningKeyFile(), d.publicKeys(t))
	waited := make(chan error, 1)
	go func() {
		_, printed, code := d.run(t, "rotate", "complete", "--wait")
		if code != 0 {
			waited <- fmt.Errorf("exit code %d: %s", code, printed)
		}
		close(waited)
	}()
	m.AwaitProbe(t, "accepted")
	if err := errors.Join(c.KillAPIServer(), c.StartAPIServer(t.Context())); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-waited:
		// The command fails if it calls kube-apiserver during the restart.
		if err != nil {
			t.Logf("the waiting command: %v", err)
			d.must(t, "rotate", "complete", "--wait")
		}
	case <-testcluster.Context(t).Done():
		t.Fatal("rotate complete --wait does not end")
	}
	m.AwaitSigner(t, third)
	held = append(held, c.IssueSignedBy(t, account, third))
	stillGood()

	d.pruneWhatMayGo(t, held, rsa, ecdsa, third)
}

// pruneWhatMayGo checks every reason for which a key is kept, then prunes the one key that may go.
func (d ringFile) pruneWhatMayGo(t *testing.T, held []*corev1.Secret, rsa, ecdsa, third string) {
	t.Helper()
	c := d.cluster
	const patient, impatient = "--longest-token-lifetime=8760h", "--longest-token-lifetime=0s"
	d.refuses(t, "kube-apiserver still signs bound tokens with key "+rsa, "prune", "--key-id="+rsa, impatient)
	d.refuses(t, "1 token Secrets bear key "+ecdsa, "prune", "--key-id="+ecdsa, impatient)
	d.refuses(t, "key "+third+" (ES256) signs", "prune", "--key-id="+third, "--force")
	for _, secret := range held {
		if testcluster.KeyIDOf(t, secret) == ecdsa {
			c.DeleteSecret(t, secret.Namespace, secret.Name)
		}
	}
	d.refuses(t, "bound tokens signed with key "+ecdsa+" (ES256) may live", "prune", "--key-id="+ecdsa, patient)
	d.refuses(t, "the hold-down of key "+ecdsa, "prune", "--key-id="+ecdsa, impatient)
	ring := d.must(t, "prune", impatient)
	for _, key := range ring.Pruned {
		if key.Pruned || key.Reason == "" {
			t.Errorf("key %s was pruned in its hold-down", key.KeyID)
		}
	}
	ring = d.must(t, "prune", "--key-id="+ecdsa, "--force")
	if len(ring.Keys) != 2 {
		t.Errorf("%d keys are left, want 2: %+v", len(ring.Keys), ring.Keys)
	}
	if left := strings.Count(string(testcluster.ReadFile(t, d.path)), ecdsa); left != 2 { // in the rotation and among the pruned
		t.Errorf("the ring names the pruned key %d times, want 2", left)
	}
}

// TestRingFileIsReloaded covers rings that a manager accepts and refuses, with keys that kube-apiserver
// has from its start.
func TestRingFileIsReloaded(t *testing.T) {
	c := testcluster.Shared(t)
	d := newRingFile(t, c, c.SigningKeyFile())
	m := c.Manage(t, append(c.VerifyKeyFlags(), d.flags()...)...)
	account := c.CreateAccount(t, c.Namespace(t), "someone")
	rsa, ecdsa := testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, c.SigningKeyFile())), testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, testcluster.ECDSAKeyFile()))
	first := c.IssueSignedBy(t, account, rsa)
	m.AwaitProbe(t, "accepted")

	start := []string{"rotate", "start", "--from-private-key-file=" + testcluster.ECDSAKeyFile()}
	d.killWaiting(t, append(start, "--wait")...)
	if next := d.must(t, start...).role(t, "next"); next != ecdsa {
		t.Errorf("key %s is next after a command was killed and run again, want %s", next, ecdsa)
	}
	d.refuses(t, "copies of the key set may be older than that: wait until", "rotate", "activate")
	m.AwaitMetric(t, "sacm_signing_key", devcluster.Labels{"key_id": ecdsa, "state": "next"}, 1)
	c.ExpectAccepted(t, c.IssueSignedBy(t, account, rsa), account)
	before := testcluster.ReadFile(t, d.path)
	d.must(t, "rotate", "activate", "--force")
	m.AwaitSigner(t, ecdsa)
	c.ExpectAccepted(t, c.IssueSignedBy(t, account, ecdsa), account)
	c.ExpectAccepted(t, first, account)

	// Old and damaged states are refused; the manager signs as before and says why.
	m.ExpectErrors = true
	state := testcluster.KeyFile{Path: d.path}
	good := testcluster.ReadFile(t, state.Path)
	for i, bad := range []struct {
		content []byte
		why     string
	}{
		{before, "is older than"},
		{good[:len(good)/2], "the key ring is not JSON"},
		{bytes.Replace(good, []byte(`"schemaVersion": 1`), []byte(`"schemaVersion": 7`), 1), "use the release that wrote the state"},
	} {
		state.Replace(t, bad.content)
		m.AwaitRefusals(t, "service-account-key-ring", i+1)
		awaitReadyDetail(t, m, "key-store ok: generation", "refused: ", bad.why, ecdsa+" signs")
		c.ExpectAccepted(t, c.IssueSignedBy(t, account, ecdsa), account)
	}
	c.AwaitWarning(t, testcluster.AboutProcess("FileReloadRefused"), "the previous content stays in use")
	state.Replace(t, good)
	testcluster.Poll(t, "await that nothing is refused", func() error {
		text, err := m.Get(t.Context(), "/readyz?verbose")
		if err == nil && strings.Contains(text, "refused: ") {
			err = errors.New(text)
		}
		return err
	})
	d.must(t, "rollback")
	m.AwaitSigner(t, rsa)
	c.ExpectAccepted(t, c.IssueSignedBy(t, account, rsa), account)
}
