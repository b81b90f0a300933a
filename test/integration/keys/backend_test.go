// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestRotateToASigner goes from a key file to a foreign signer with a key ID of its own, loses that signer
// for a while, goes back to a file, and revokes the foreign key, which has leaked, while its process is away.
// A verification file has that key, too, as sa.pub of a cluster that came from it. Neither kube-apiserver nor
// the manager is restarted.
func TestRotateToASigner(t *testing.T) {
	const id = "hsm/1:sa"
	dir := t.TempDir()
	leaked := testkeys.Parse(testkeys.P256())
	foreign := signertest.ServeForeign(t, dir+"/hsm.sock", id, testkeys.P256())
	sockets := "--service-account-key-sockets=" +
		testcluster.WriteFile(t, "sockets.yaml", []byte("schemaVersion: 1\nsockets:\n  hsm: "+dir+"/hsm.sock\n"))
	d := newRingFile(t, "--from-private-key-file="+newKey(t, devcluster.RSA))

	public, err := signing.EncodePublicKeys(leaked.Public())
	testutil.Must(t, err)
	c := startSigner(t, append(d.flags(), sockets, "--service-account-key-file="+testcluster.WriteFile(t, "sa.pub", public))...)
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

	d.must(t, "next", "--key=kep740:hsm", sockets)
	d.refuses(t, "give --next-key=", "rotate", "--wait", sockets, "--cache-age=0s")
	d.must(t, "rotate", "--wait", "--next-key=none", sockets, "--cache-age=0s")
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

	foreign.Stop() // a way back needs nothing of it
	d.refuses(t, "the ring has no next key: make one with keys next", "rotate", sockets)
	back := d.must(t, "next", "--algorithm=P-256", sockets).role(t, "next")
	d.must(t, "rotate", "--wait", sockets, "--cache-age=0s")
	c.manager.AwaitSigner(t, back)
	accepted(c.requested(t, account), back)
	accepted(remote, id)

	forged := c.forge(t, leaked, account)
	accepted(forged, leaked.ID())
	begun = time.Now()
	d.must(t, "revoke", id, "--yes", sockets)
	c.refusedAfter(t, begun, remote, forged, string(secret.Data["token"]))
	// Until now a rollback could have gone back to it.
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
	c.AwaitSecret(t, secret.Namespace, secret.Name, func(s *corev1.Secret) error {
		if testcluster.KeyIDOf(t, s) != back {
			return errors.New("it has the token of the revoked key")
		}
		return nil
	})
	accepted(c.requested(t, account), back)
	accepted(old, first)
}

// forge makes a token as a thief of the key does.
func (c *signerCluster) forge(t *testing.T, key *signing.PrivateKey, account *corev1.ServiceAccount) string {
	t.Helper()
	token, err := tokens.NewIssuer(key, tokens.CompatClaims).Bound(t.Context(), tokens.BoundRequest{
		Issuer: c.Issuer(), Audiences: []string{c.Issuer()}, Lifetime: time.Hour,
		Account: tokens.Account{Namespace: account.Namespace, Name: account.Name, UID: string(account.UID)},
	})
	testutil.Must(t, err)
	return token
}

// refusedAfter wants each token, which kube-apiserver has accepted a moment ago, to be refused 12 s after a
// revocation has begun: it caches what it has accepted for 10 s.
func (c *signerCluster) refusedAfter(t *testing.T, begun time.Time, revoked ...string) {
	t.Helper()
	for _, token := range revoked {
		testcluster.Poll(t, "await the refusal of a token", func() error {
			reviewed, err := c.Review(testcluster.Context(t), token)
			if err == nil && reviewed.Authenticated {
				err = errors.New("it is accepted")
			}
			return err
		})
	}
	if took := time.Since(begun); took > 12*time.Second {
		t.Errorf("tokens of the key were accepted for %s", took.Round(time.Millisecond))
	}
}
