// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestRotateToASigner goes from a key file to a foreign signer with a key ID of its own, loses that signer
// for a while, and goes back to a file. Neither kube-apiserver nor the manager is restarted.
func TestRotateToASigner(t *testing.T) {
	const id = "hsm/1:sa"
	dir := t.TempDir()
	foreign := signertest.ServeForeign(t, dir+"/hsm.sock", id, testkeys.P256())
	sockets := "--service-account-key-sockets=" +
		testcluster.WriteFile(t, "sockets.yaml", []byte("schemaVersion: 1\nsockets:\n  hsm: "+dir+"/hsm.sock\n"))
	d := ringFile{path: filepath.Join(dir, "keys", "ring.json")}
	testcluster.Run(t, "", "keys", "init", d.flag(), "--from-private-key-file="+newKey(t, devcluster.RSA)).ExpectCode(t, 0)

	c := startSigner(t, append(d.flags(), sockets)...)
	c.manager.ExpectErrors = true // its signer goes away
	d.cluster = c.ControlPlane
	account := c.CreateAccount(t, c.Namespace(t), "signed")
	accepted := func(token string, keyID string) {
		t.Helper()
		if header, _ := testcluster.DecodeToken(t, []byte(token)); header["kid"] != keyID {
			t.Errorf("the token's header is %v, want kid %q", header, keyID)
		}
		if reviewed, err := c.Review(testcluster.Context(t), token); err != nil || !reviewed.Authenticated {
			t.Errorf("a token of key %q is refused: %v %s", keyID, err, reviewed.Error)
		}
	}
	first := d.must(t, "list").role(t, "active")
	old := c.requested(t, account)

	d.must(t, "rotate", "start", "--key=kep740:hsm", sockets, "--cache-age=0s")
	d.must(t, "rotate", "complete", "--wait", sockets)
	c.manager.AwaitSigner(t, id)
	remote := c.requested(t, account)
	accepted(remote, id)
	accepted(old, first)
	secret := c.IssueSignedBy(t, account, id)
	c.ExpectAccepted(t, secret, account)

	foreign.Stop()
	begun := time.Now()
	if _, err := c.request(testcluster.Context(t), account, time.Hour); err == nil || time.Since(begun) > 5*time.Second {
		t.Errorf("a token without its signer, after %s: %v", time.Since(begun), err)
	}
	waiting := c.CreateSecret(t, testcluster.TokenSecret(account.Namespace, "waiting", account.Name))
	c.AwaitWarning(t, testcluster.AboutProcess("SigningKeyAway"), "kep740:hsm does not sign")
	awaitReadyDetail(t, c.manager, "[+]key-backends ok: kep740:hsm (key "+id+") is away")
	accepted(remote, id)
	accepted(old, first)
	if err := testcluster.HasToken(c.GetSecret(t, account.Namespace, waiting.Name)); err == nil {
		t.Error("a token Secret was filled without its signer")
	}

	foreign.Start(t)
	c.ExpectAccepted(t, c.AwaitFilled(t, account.Namespace, waiting.Name), account)
	c.AwaitEvent(t, testcluster.AboutProcess("SigningKeyBack"), "kep740:hsm signs again")
	c.manager.AwaitMetric(t, "sacm_backend_up", devcluster.Labels{"key_id": id}, 1)

	foreign.Set(func(b *signertest.Behaviour) {
		b.Listed = append(b.Listed, signertest.ListedKey(t, "next", testkeys.P256Other()))
	})
	c.manager.AwaitMetric(t, "sacm_backend_unpinned_keys", devcluster.Labels{"key_id": id}, 1)

	d.must(t, "rotate", "start", "--algorithm=P-256", sockets, "--cache-age=0s")
	back := d.must(t, "rotate", "complete", "--wait", sockets).role(t, "active")
	c.manager.AwaitSigner(t, back)
	foreign.Stop()
	accepted(c.requested(t, account), back)
	accepted(remote, id)
	testcluster.Poll(t, "await the end of the signer's series", func() error {
		metrics, err := c.manager.Metrics(testcluster.Context(t))
		if err != nil {
			return err
		}
		if unpinned := metrics.Sum("sacm_backend_unpinned_keys", devcluster.Labels{"key_id": id}); unpinned != 0 {
			return fmt.Errorf("%v keys are not pinned", unpinned)
		}
		return nil
	})
}
