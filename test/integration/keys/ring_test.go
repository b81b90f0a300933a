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

	"sa-controller-manager/internal/testutil"

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
	Keys []struct{ ID, Role string }
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
		testutil.Must(t, json.Unmarshal(data, &ring))
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

// killWaiting runs "keys" with words that publish a key and wait, and kills it while it waits.
func (d ringFile) killWaiting(t *testing.T, words ...string) {
	t.Helper()
	binary := testcluster.Binary(t)
	cmd := exec.CommandContext(testcluster.Context(t), binary.Path, append(append([]string{"keys"}, words...), d.flag())...)
	testutil.Must(t, cmd.Start())
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

// TestRingFileIsReloaded covers rings that a manager accepts and refuses, with keys that kube-apiserver
// has from its start.
func TestRingFileIsReloaded(t *testing.T) {
	c := testcluster.Shared(t)
	d := newRingFile(t, c, c.SigningKeyFile())
	m := c.Manage(t, append(c.VerifyKeyFlags(), d.flags()...)...)
	account := c.CreateAccount(t, c.Namespace(t), "someone")
	rsa, ecdsa := testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, c.SigningKeyFile())), testcluster.KeyIDOfPEM(t,
		testcluster.ReadFile(t, testcluster.ECDSAKeyFile()))
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
