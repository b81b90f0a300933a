// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// The headings of docs/rotation.md that are run.
const (
	pasteFirst     = "Paste this first"
	makeRing       = "Once: make a key ring"
	takeSigner     = "To have kube-apiserver use our signer"
	leaveFiles     = "To leave kube-apiserver its key files"
	rotating       = "Rotate"
	pruning        = "Prune"
	restarting     = "Restart kube-apiserver"
	goingBack      = "Going back"
	severalNodes   = "Several control-plane nodes"
	afterLeak      = "After a leak"
	restoring      = "Restore from a backup"
	beforeHandback = "Before a handback"
)

const ringFile = "/etc/kubernetes/pki/sa-keys/ring.json"

// headings are all: commands stand below no other one.
func headings() []string {
	return []string{
		pasteFirst, makeRing, takeSigner, leaveFiles, rotating, pruning, restarting, goingBack, severalNodes, afterLeak, restoring,
		beforeHandback,
	}
}

// TestRotationWithSigner follows the page on a node whose kube-apiserver uses our signer.
func TestRotationWithSigner(t *testing.T) {
	await.Long(t)
	t.Parallel()
	p := openRotationPage(t)
	n := p.node
	p.follow(t, makeRing)
	n.copyPKI(t) // before all rotations
	old := n.read(t, ringFile)
	p.follow(t, takeSigner)
	rsa := p.calls(t, "RS256")
	p.hold(t)
	started := n.apiServerStart(t)

	p.follow(t, rotating)
	previous := p.calls(t, "RS256", rsa)
	p.follow(t, rotating) // the page has replaced the next key
	ecdsa := p.calls(t, "ES256")
	p.follow(t, pruning)
	n.allAccepted(t, "after two rotations", p.good)
	p.follow(t, goingBack)
	if back := p.calls(t, "RS256"); back != previous || back == rsa {
		t.Errorf("key %s signs after going back, want %s", back, previous)
	}
	n.allAccepted(t, "after going back", p.good)
	if n.apiServerStart(t) != started {
		t.Error("kube-apiserver was restarted by a rotation")
	}
	n.kubelet.reboot() // kube-apiserver and signer start together, and each is all that the other could wait for
	n.allAccepted(t, "after a reboot", p.good)
	started = n.apiServerStart(t)

	p.follow(t, severalNodes)
	p.copiesAreEqual(t)
	n.write(t, ringFile, old)
	p.follow(t, restoring)
	p.copiesAreEqual(t)

	former := p.takeTokensOf(t, previous)
	p.follow(t, afterLeak)
	if n.apiServerStart(t) != started {
		t.Error("kube-apiserver was restarted by a rotation")
	}
	n.reviewed(t, "after the leak", former, false)
	now := p.calls(t, "RS256")
	if now == previous || now == rsa || now == ecdsa {
		t.Errorf("key %s signs after the leak, want the next one", now)
	}
	p.follow(t, afterLeak)
	if again := p.calls(t, "RS256"); again != now {
		t.Errorf("pasted again, it has revoked key %s", now)
	}
	n.allAccepted(t, "after the leak", p.good)

	p.follow(t, beforeHandback)
	n.allAccepted(t, "after the handback", p.good)
	weAreGone(t, n)
}

// TestRotationWithoutSigner follows it on one whose kube-apiserver has key files.
func TestRotationWithoutSigner(t *testing.T) {
	await.Long(t)
	t.Parallel()
	p := openRotationPage(t)
	n := p.node
	p.follow(t, makeRing)
	p.follow(t, leaveFiles)
	rsa := p.calls(t, "RS256")
	p.hold(t)

	p.restart(t)
	p.follow(t, rotating)
	p.restart(t)
	previous := p.calls(t, "RS256", rsa)
	n.allAccepted(t, "after a rotation", p.good)

	former := p.takeTokensOf(t, previous)
	p.follow(t, afterLeak)
	p.restart(t)
	p.follow(t, afterLeak)
	n.reviewed(t, "after the leak", former, false)
	if now := p.calls(t, "ES256"); now == previous || now == rsa {
		t.Errorf("key %s signs after the leak, want the next one", now)
	}
	n.allAccepted(t, "after the leak", p.good)
}

// restart returns when another kube-apiserver is ready.
func (p *rotationPage) restart(t *testing.T) {
	t.Helper()
	before := p.node.apiServerStart(t)
	p.follow(t, restarting)
	poll(t, "another kube-apiserver", func(ctx context.Context) error {
		text, err := p.node.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err == nil && string(startTime().Find(text)) == before {
			err = errors.New("it is the same one")
		}
		return err
	})
}

// takeTokensOf returns the tokens of a key, which need not be accepted from now on.
func (p *rotationPage) takeTokensOf(t *testing.T, keyID string) map[string]string {
	t.Helper()
	taken := maps.Clone(p.good)
	maps.DeleteFunc(taken, func(_, token string) bool { return headerOf(t, token).KeyID != keyID })
	maps.DeleteFunc(p.good, func(whose, _ string) bool { return taken[whose] != "" })
	if len(taken) == 0 {
		t.Fatalf("no token of key %s", keyID)
	}
	return taken
}

// copyPKI gives the second node what kubeadm join has given it: the keys of the first one.
func (n *node) copyPKI(t *testing.T) {
	t.Helper()
	const pki = "/etc/kubernetes/pki"
	// scp -p keeps modes, and os.CopyFS does not.
	copied := filepath.Join(n.another(), pki)
	testutil.Must(t, os.MkdirAll(copied, 0o700))
	testutil.Must(t, exec.CommandContext(t.Context(), "cp", "-a", n.path(pki)+"/.", copied).Run())
	const admin = "/etc/kubernetes/admin.conf"
	testutil.Must(t, os.WriteFile(n.another()+admin, n.read(t, admin), 0o600))
	t.Cleanup(func() { _ = os.RemoveAll(n.another()) })
}

// calls requests a token, which has to be signed that way and by another key than a former one, and tells by
// which.
func (p *rotationPage) calls(t *testing.T, algorithm string, former ...string) string {
	t.Helper()
	var token string
	poll(t, "a token of "+algorithm, func(ctx context.Context) error {
		answer, err := p.node.client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{},
			metav1.CreateOptions{})
		if err != nil {
			return err
		}
		token = answer.Status.Token
		if got := headerOf(t, token); got.Algorithm != algorithm || slices.Contains(former, got.KeyID) {
			return fmt.Errorf("kube-apiserver issues tokens of %s by key %s", got.Algorithm, got.KeyID)
		}
		return nil
	})
	p.good[fmt.Sprintf("number %d", len(p.good))] = token
	return headerOf(t, token).KeyID
}

// hold makes a token Secret that a client uses all the while.
func (p *rotationPage) hold(t *testing.T) {
	t.Helper()
	secrets := p.node.client.CoreV1().Secrets("default")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "held", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	_, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{})
	testutil.Must(t, err)
	poll(t, "the token of the secret", func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, "held", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if p.good["of the Secret"] = string(secret.Data[corev1.ServiceAccountTokenKey]); p.good["of the Secret"] == "" {
			return errors.New("it has none")
		}
		return nil
	})
}

// apiServerStart tells one kube-apiserver from another that has taken its place.
func (n *node) apiServerStart(t *testing.T) string {
	t.Helper()
	text, err := n.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	testutil.Must(t, err)
	return string(startTime().Find(text))
}

// copiesAreEqual compares the key rings of the two nodes.
func (p *rotationPage) copiesAreEqual(t *testing.T) {
	t.Helper()
	for _, path := range []string{ringFile, "/etc/kubernetes/pki/sa.key", "/etc/kubernetes/pki/sa.pub"} {
		there, err := os.ReadFile(filepath.Join(p.node.another(), path))
		if err != nil || !bytes.Equal(there, p.node.read(t, path)) {
			t.Errorf("%s is another file on the second node: %v", path, err)
		}
	}
}
