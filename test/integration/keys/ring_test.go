// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"encoding/json"
	"errors"
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

// newRingFile has a ring with an active key and a next one, both new.
func newRingFile(t *testing.T, words ...string) ringFile {
	t.Helper()
	d := ringFile{path: filepath.Join(t.TempDir(), "keys", "ring.json")}
	testcluster.Run(t, "", append([]string{"keys", "init", d.flag()}, words...)...).ExpectCode(t, 0)
	d.watchCanary(t)
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
	var ring struct{ PEM map[string]string }
	testutil.Must(t, json.Unmarshal(testcluster.ReadFile(t, d.path), &ring))
	for _, pem := range ring.PEM {
		if strings.Contains(pem, "PRIVATE KEY") {
			testcluster.Leaks.AddKey([]byte(pem))
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

// TestRingFileIsReloaded rotates under a running manager, and gives it rings that it refuses.
func TestRingFileIsReloaded(t *testing.T) {
	d := newRingFile(t, "--algorithm=P-256")
	c := startSigner(t, d.flags()...)
	d.cluster = c.ControlPlane
	m := c.manager
	account := c.CreateAccount(t, c.Namespace(t), "someone")
	ring := d.must(t, "list")
	first, next := ring.role(t, "active"), ring.role(t, "next")
	token := c.IssueSignedBy(t, account, first)
	m.AwaitMetric(t, "sacm_signing_key", devcluster.Labels{"key_id": next, "state": "next"}, 1)

	d.refuses(t, "copies of the key set may be without key "+next, "rotate")
	before := testcluster.ReadFile(t, d.path)
	d.must(t, "rotate", "--wait", "--cache-age=0s")
	m.AwaitSigner(t, next)
	c.ExpectAccepted(t, c.IssueSignedBy(t, account, next), account)
	c.ExpectAccepted(t, token, account)

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
		awaitReadyDetail(t, m, "key-store ok: generation", "refused: ", bad.why, next+" signs")
		c.ExpectAccepted(t, c.IssueSignedBy(t, account, next), account)
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
	m.AwaitSigner(t, first)
	c.ExpectAccepted(t, c.IssueSignedBy(t, account, first), account)
	d.refuses(t, "nothing to go back to", "rollback")
}
