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
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/tokens"

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
	back := p.calls(t, "RS256")
	testutil.Expect(t, back == previous && back != rsa, "key %s signs after going back, want %s", back, previous)
	n.allAccepted(t, "after going back", p.good)
	testutil.Expect(t, n.apiServerStart(t) == started, "kube-apiserver was restarted by a rotation")
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
	testutil.Expect(t, n.apiServerStart(t) == started, "kube-apiserver was restarted by a rotation")
	n.reviewed(t, "after the leak", former, false)
	now := p.calls(t, "RS256")
	testutil.Expect(t, now != previous && now != rsa && now != ecdsa, "key %s signs after the leak, want the next one", now)
	p.follow(t, afterLeak)
	testutil.Expect(t, p.calls(t, "RS256") == now, "pasted again, it has revoked key %s", now)
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
	now := p.calls(t, "ES256")
	testutil.Expect(t, now != previous && now != rsa, "key %s signs after the leak, want the next one", now)
	n.allAccepted(t, "after the leak", p.good)
}

// rotationPage is docs/rotation.md and the node on which a reader follows it.
type rotationPage struct {
	node     *node
	sections map[string]string // the commands below each heading
	good     map[string]string // tokens that have to be accepted, by whose they are
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
	testutil.Require(t, len(taken) != 0, "no token of key %s", keyID)
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
	text := testutil.Get(n.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context()))(t)
	return string(startTime().Find(text))
}

// copiesAreEqual compares the key rings of the two nodes.
func (p *rotationPage) copiesAreEqual(t *testing.T) {
	t.Helper()
	for _, path := range []string{ringFile, "/etc/kubernetes/pki/sa.key", "/etc/kubernetes/pki/sa.pub"} {
		there, err := os.ReadFile(filepath.Join(p.node.another(), path))
		testutil.Expect(t, err == nil && bytes.Equal(there, p.node.read(t, path)), "%s is another file on the second node: %v", path, err)
	}
}

func openRotationPage(t *testing.T) *rotationPage {
	t.Helper()
	p := &rotationPage{node: newNode(t), sections: readRotationPage(t), good: map[string]string{}}
	awaitDefaultAccount(t, p.node, "default")
	awaitDefaultAccount(t, p.node, "kube-system")
	return p
}

// readRotationPage returns the commands below each heading that has any.
func readRotationPage(t *testing.T) map[string]string {
	t.Helper()
	content := testutil.Get(os.ReadFile("../../docs/rotation.md"))(t)
	sections := map[string]string{}
	heading, fenced := "", false
	for line := range strings.Lines(string(content)) {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && !fenced && fence != "sh test":
			t.Fatalf("a block of %q that nobody runs", fence)
		case isFence:
			fenced = !fenced
		case fenced && !slices.Contains(headings(), heading):
			t.Fatalf("nobody runs the commands below %q", heading)
		case fenced:
			sections[heading] += line
		case strings.HasPrefix(line, "##"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return sections
}

// follow types what is below a heading into a shell.
func (p *rotationPage) follow(t *testing.T, heading string) {
	t.Helper()
	testutil.Require(t, p.sections[heading] != "", "the page has no commands below %q", heading)
	p.run(t, heading, p.sections[heading])
}

// run runs commands in a shell that knows what is to be pasted first.
func (p *rotationPage) run(t *testing.T, heading, commands string) {
	t.Helper()
	printed, err := p.node.shell(t, p.sections[pasteFirst]+commands).CombinedOutput()
	testutil.Require(t, err == nil, "%s: %v\n%s\nprinted:\n%s\n%s", heading, err, commands, printed, p.node.kubelet)
}

func startTime() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^process_start_time_seconds .*$`)
}

// headerOf reads a token without verifying it.
func headerOf(t *testing.T, token string) tokens.Token {
	t.Helper()
	return testutil.Get(tokens.Inspect(token))(t)
}

// allAccepted asks until kube-apiserver has answered; it may be on its way out or in.
func (n *node) allAccepted(t *testing.T, when string, all map[string]string) {
	t.Helper()
	n.reviewed(t, when, all, true)
}

// reviewed asks until kube-apiserver accepts all tokens, or refuses them.
func (n *node) reviewed(t *testing.T, when string, all map[string]string, accepted bool) {
	t.Helper()
	for whose, token := range all {
		poll(t, when+", the token "+whose, func(ctx context.Context) error {
			review, err := n.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{Token: token},
			}, metav1.CreateOptions{})
			if err == nil && review.Status.Authenticated != accepted {
				err = fmt.Errorf("it is accepted: %t, want %t: %s", !accepted, accepted, review.Status.Error)
			}
			return err
		})
	}
}

// TestOnlySigner follows docs/signer.md: our process has its own permissions and no others, kube-controller-manager and the plugin
// go on, a rotation needs no restart, and both manifests come back byte for byte, also after the rest was taken over.
func TestOnlySigner(t *testing.T) {
	await.Long(t)
	t.Parallel()
	p := openRotationPage(t)
	n := p.node
	before := n.manifests(t)
	first := p.calls(t, "RS256")
	p.hold(t)
	blocks := pageCommands(t, "../../docs/signer.md", "## On a kubeadm node")
	takeOver, rotate, everything, handBack := blocks[0], blocks[1], blocks[2], blocks[3]

	p.run(t, "take over", takeOver)
	n.must(t, "status")
	n.onlySigns(t, before)
	key := p.calls(t, "RS256")
	testutil.Expect(t, key == first, "key %s signs after the takeover, want %s", key, first)
	started := n.apiServerStart(t)
	p.run(t, "rotate", rotate)
	second := p.calls(t, "RS256", first)
	p.run(t, "rotate", rotate)
	p.calls(t, "RS256", first, second)
	testutil.Expect(t, n.apiServerStart(t) == started, "kube-apiserver was restarted by a rotation")
	n.kubelet.reboot() // kube-apiserver starts only beside our process
	n.allAccepted(t, "after two rotations and a reboot", p.good)
	p.run(t, "hand back", handBack)
	testutil.Check(t, "manifests", before, n.manifests(t))
	n.allAccepted(t, "after the handback", p.good)
	weAreGone(t, n)

	const only = "sa-controller-manager kubeadm takeover --only=signer\n"
	p.run(t, "take over again", only)
	n.onlySigns(t, before)
	p.run(t, "take over everything", everything)
	weRun(t, n)
	p.calls(t, "RS256", first, second)
	want := "first run: kubeadm handback"
	if printed, err := n.shell(t, only).CombinedOutput(); err == nil || !strings.Contains(string(printed), want) {
		t.Errorf("the signer alone after all was taken over: %v, want %q:\n%s", err, want, printed)
	}
	p.run(t, "hand back", handBack)
	testutil.Check(t, "manifests", before, n.manifests(t))
	n.allAccepted(t, "after the second handback", p.good)
	weAreGone(t, n)
}

// onlySigns wants nothing of ours but what the signer needs, and everything else to be done by the others.
func (n *node) onlySigns(t *testing.T, before map[string]string) {
	t.Helper()
	var want []string
	for kind, names := range map[string][]string{
		"clusterroles": {"signer", "secure-serving"}, "clusterrolebindings": {"signer", "secure-serving"},
		"roles": {"signer", "secure-serving"}, "rolebindings": {"signer", "secure-serving"},
	} {
		for _, name := range names {
			want = append(want, kind+"/system:sa-controller-manager:"+name)
		}
	}
	want = append(want, "pods/sa-controller-manager-"+nodeName, "secrets/sa-controller-manager-key-ring")
	slices.Sort(want)
	testutil.Check(t, "what is ours", want, n.ours(t))
	now := n.manifests(t)
	testutil.Check(t, "kube-controller-manager", before["kube-controller-manager"], now["kube-controller-manager"])
	testutil.Expect(t, !strings.Contains(now["kube-apiserver"], "--disable-admission-plugins"), "kube-apiserver has lost a plugin:\n%s",
		now["kube-apiserver"])
	by := newcomer(t, n)
	testutil.Expect(t, by == "kube-controller-manager", "a token Secret was filled by %q", by)
}
