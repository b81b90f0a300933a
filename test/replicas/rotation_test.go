// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// TestRotateOnTwoNodes does what docs/rotation.md says about several control-plane nodes: a rotation and the way back, with
// kube-apiserver, process and copy of the key ring on each of two hosts. At every moment each kube-apiserver accepts
// the tokens of both, and those that were issued before.
func TestRotateOnTwoNodes(t *testing.T) {
	await.Long(t)
	for name, signer := range map[string]bool{"ExternalSigner": true, "KeyFiles": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newKeyNodes(t, signer)
			former := p.first.signs(t)
			load := p.startLoad(t)
			p.judge(t, "before", former, former)

			ring := p.keys(t, p.first, "rotate", "start", "--algorithm=P-256", "--cache-age=0s")
			next := ring.role("next")
			if !signer {
				p.toFiles(t, p.first)
				p.restart(t, p.first)
				p.judge(t, "started, one node has the copy", former, former)
				p.refuses(t, "cannot sign yet: "+p.second.Config().Host, p.first, "rotate", "activate", p.other())
			}
			p.first.awaitGeneration(t, ring)
			poll(t, "one that nobody has named is missed", func(context.Context) error {
				_, stderr, err := p.run(t, p.first, "rotate", "activate")
				if err == nil || !strings.Contains(string(stderr), "kube-apiserver runs on 2 hosts") {
					return fmt.Errorf("%w: %s", err, stderr) // times in the ring are rounded up to the second
				}
				return nil
			})
			p.refuses(t, "cannot sign yet: "+p.second.Config().Host, p.first, "rotate", "activate", p.other())
			p.distribute(t, ring, "started")
			for _, node := range p.nodes() {
				status := p.keys(t, node, "rotate", "status")
				if status.Generation != ring.Generation || len(status.Findings) > 0 || !status.accepted(former) || !status.accepted(next) {
					t.Errorf("status on %s: %+v, want generation %d", node.name, status, ring.Generation)
				}
			}
			p.judge(t, "started", former, former)

			ring = p.keys(t, p.first, "rotate", "activate", p.other(), "--hold-down=0s")
			if signer {
				p.first.awaitGeneration(t, ring)
				p.judge(t, "activated, one node has the copy", next, former)
			}
			p.distribute(t, ring, "activated")
			p.judge(t, "activated", next, next)

			p.distribute(t, p.keys(t, p.first, "rotate", "complete", p.other(), "--hold-down=0s"), "")
			p.judge(t, "completed", next, next)

			ring = p.keys(t, p.first, "rollback", p.other(), "--hold-down=0s")
			p.refuses(t, "kube-apiserver still signs bound tokens with key "+next, p.first, "prune", "--key-id="+next, p.other(), "--longest-token-lifetime=0s", "--hold-down=0s")
			if again := p.keys(t, p.first, "list"); again.Generation != ring.Generation+1 {
				t.Errorf("generation %d, want that the time of the retirement was moved in generation %d", again.Generation, ring.Generation+1)
			}
			p.distribute(t, p.keys(t, p.first, "list"), "rolled back")
			p.judge(t, "rolled back", former, former)

			dead := p.tokensOf(next)
			load.end(t)
			if signer {
				p.revoke(t, next)
				p.forget(next)
			} else {
				p.forget(next)
				p.distribute(t, p.keys(t, p.first, "prune", "--key-id="+next, p.other(), "--longest-token-lifetime=0s"), "pruned")
			}
			p.judge(t, "pruned", former, former)
			p.dead(t, dead)
		})
	}
}

// TestForceWithAForgottenNode activates a key by force while the second node does not have it: the
// second kube-apiserver refuses the tokens of that key, and nothing else is refused anywhere.
func TestForceWithAForgottenNode(t *testing.T) {
	await.Long(t)
	for name, signer := range map[string]bool{"ExternalSigner": true, "KeyFiles": false} {
		t.Run(name, func(t *testing.T) {
			p := newKeyNodes(t, signer)
			p.exportSignerMetrics(t)
			previous := p.first.signs(t)
			p.judge(t, "before", previous, previous)

			ring := p.keys(t, p.first, "rotate", "start", "--algorithm=P-256", "--cache-age=0s")
			next := ring.role("next")
			if !signer {
				p.toFiles(t, p.first)
				p.restart(t, p.first)
			}
			p.first.awaitGeneration(t, ring)
			ring = p.keys(t, p.first, "rotate", "activate", "--force", "--hold-down=0s")
			if !signer {
				p.toFiles(t, p.first)
				p.restart(t, p.first)
			}
			p.first.awaitGeneration(t, ring)
			p.issue(t, "forced", next, previous)
			p.review(t, "forced", next)

			p.distribute(t, ring, "")
			if !signer {
				p.restart(t, p.second)
			}
			p.judge(t, "copied", next, next)
		})
	}
}

// keyNodes are two, with what they have issued.
type keyNodes struct {
	first, second *keyNode

	signer bool
	binary devcluster.Binary
	step   int
	good   []issued
}

// exportSignerMetrics wants of each kube-apiserver the series by which the alert SACMSignerMissing
// tells one with the external signer from one with key files.
func (p *keyNodes) exportSignerMetrics(t *testing.T) {
	t.Helper()
	for _, node := range p.nodes() {
		text, err := node.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for series, want := range map[string]bool{"apiserver_externaljwt_fetch_keys_success_timestamp": p.signer, "apiserver_current_inflight_requests": true} {
			if got := strings.Contains(string(text), "\n"+series); got != want {
				t.Errorf("%s exports %s: %t, want %t", node.name, series, got, want)
			}
		}
	}
}

// revoke takes a key away on the first node. The command waits for the other one, which gets its copy
// late, and from then on no token of the key is accepted for longer than kube-apiserver's cache of
// tokens.
func (p *keyNodes) revoke(t *testing.T, id string) {
	t.Helper()
	leaked := p.tokensOf(id)
	p.refuses(t, "give --yes to revoke the key", p.first, "revoke", id)
	ended := make(chan error, 1)
	go func() {
		_, stderr, err := p.run(t, p.first, "revoke", id, p.other(), "--yes")
		if err != nil {
			err = fmt.Errorf("keys revoke: %w: %s", err, stderr)
		}
		ended <- err
	}()
	poll(t, "the ring of the first node lacks the key", func(context.Context) error {
		if list := p.keys(t, p.first, "list"); slices.ContainsFunc(list.Keys, func(key struct{ ID, Role, Accepted string }) bool { return key.ID == id }) {
			return errors.New("it is there")
		}
		return nil
	})
	select {
	case err := <-ended:
		t.Errorf("it did not wait for the second node: %v", err)
	default:
	}
	p.copyRing(t)
	copied := time.Now()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Logf("keys revoke returned %s after the second copy", time.Since(copied).Round(time.Millisecond))
	p.dead(t, leaked)
	if took := time.Since(copied); took > 12*time.Second {
		t.Errorf("tokens of the key were accepted for up to %s after the second copy", took)
	}
}

// keyNode is a host.
type keyNode struct {
	*devcluster.Cluster

	name    string
	client  kubernetes.Interface
	manager *devcluster.Manager
	away    atomic.Bool // kube-apiserver is being restarted
}

func (n *keyNode) pki(name string) string { return filepath.Join(n.Dir(), "pki", name) }

type issued struct{ what, token, keyID string }

func newKeyNodes(t *testing.T, signer bool) *keyNodes {
	t.Helper()
	p := &keyNodes{first: &keyNode{name: "cp-1"}, second: &keyNode{name: "cp-2"}, signer: signer, binary: currentBinary(t)}
	node := p.first
	cluster, err := devcluster.Start(t.Context(), devcluster.Options{
		ExternalSigner: signer,
		BeforeAPIServer: func(cluster *devcluster.Cluster) error {
			node.Cluster = cluster
			return p.prepare(t, node)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	stops(t, cluster)
	node = p.second
	joined, err := cluster.Join(t.Context(), "cp-2")
	if errors.Is(err, os.ErrPermission) {
		t.Skipf("only root can make hosts: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	stops(t, joined)
	for _, node := range p.nodes() {
		node.client = client(t, node.Cluster)
		if node.manager == nil {
			if err := p.manage(node); err != nil {
				t.Fatal(err)
			}
		}
		if err := node.manager.Ready(limited(t)); err != nil {
			t.Fatal(err)
		}
	}
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		poll(t, "await an account", func(ctx context.Context) error {
			_, err := p.second.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
			return err
		})
	}
	p.hold(t)
	return p
}

func (p *keyNodes) nodes() []*keyNode { return []*keyNode{p.first, p.second} }

// other is the flag for the kube-apiserver that is not asked by itself.
func (p *keyNodes) other() string { return "--apiserver=" + p.second.Config().Host }

// prepare is what is done on a node before kube-apiserver is started there.
func (p *keyNodes) prepare(t *testing.T, n *keyNode) error {
	t.Helper()
	if err := os.MkdirAll(n.pki(""), 0o700); err != nil {
		return err
	}
	if n == p.first {
		p.keys(t, n, "init", "--from-private-key-file="+n.SigningKeyFile())
		p.toFiles(t, n)
	} else {
		p.copyRing(t)
	}
	if p.signer {
		return p.manage(n)
	}
	n.SetAPIServerFlag("service-account-signing-key-file", n.pki("sa.key"))
	n.SetAPIServerFlag("service-account-key-file", n.pki("sa.pub"))
	return nil
}

func (p *keyNodes) manage(n *keyNode) (err error) {
	flags := []string{"--token-secrets=manual", "--leader-elect=true", "--service-account-private-key-file=", "--service-account-key-ring=" + n.ring()}
	if p.signer {
		flags = append(flags, "--external-signer-socket="+n.SignerSocket(), "--external-signer-refresh-hint=2s")
	}
	n.manager, err = p.binary.StartManager(n.Cluster, flags...)
	return err
}

// hold has a token Secret filled.
func (p *keyNodes) hold(t *testing.T) {
	t.Helper()
	secrets := p.first.client.CoreV1().Secrets(metav1.NamespaceDefault)
	if _, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "held", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, "await the token of the Secret", func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, "held", metav1.GetOptions{})
		if err != nil {
			return err
		}
		token := string(secret.Data[corev1.ServiceAccountTokenKey])
		if token == "" {
			return errors.New("it has none")
		}
		p.good = append(p.good, issued{"of the Secret", token, ""})
		return nil
	})
}

// keyRing is what the commands print.
type keyRing struct {
	Generation int64
	Findings   []struct{ Code string }
	Keys       []struct{ ID, Role, Accepted string }
}

func (r keyRing) role(role string) string {
	for _, key := range r.Keys {
		if key.Role == role {
			return key.ID
		}
	}
	return ""
}

func (r keyRing) accepted(id string) bool {
	for _, key := range r.Keys {
		if key.ID == id {
			return key.Accepted == "yes"
		}
	}
	return false
}

// keys runs a command on a node.
func (p *keyNodes) keys(t *testing.T, n *keyNode, words ...string) (ring keyRing) {
	t.Helper()
	stdout, stderr, err := p.run(t, n, words...)
	if err != nil {
		t.Fatalf("keys %v: %v\n%s%s", words, err, stdout, stderr)
	}
	if err := json.Unmarshal(stdout, &ring); err != nil {
		t.Fatalf("keys %v: %v in %s", words, err, stdout)
	}
	return ring
}

func (p *keyNodes) refuses(t *testing.T, sentence string, n *keyNode, words ...string) {
	t.Helper()
	stdout, stderr, err := p.run(t, n, words...)
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 || !strings.Contains(string(stderr), sentence) {
		t.Errorf("keys %v: %v, want exit code 1 and %q:\n%s%s", words, err, sentence, stdout, stderr)
	}
}

func (p *keyNodes) run(t *testing.T, n *keyNode, words ...string) (stdout, stderr []byte, err error) {
	t.Helper()
	args := append(append([]string{"keys"}, words...), "--service-account-key-ring="+n.ring(), "-o=json")
	if words[0] != "init" {
		args = append(args, "--kubeconfig="+n.Kubeconfig())
	}
	if words[0] == "list" || words[len(words)-1] == "status" {
		args = append(args, p.other()) // or it would be a finding that one is not asked
	}
	command := exec.CommandContext(limited(t), p.binary.Path, args...)
	var out, complaint bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaint
	err = command.Run()
	return out.Bytes(), complaint.Bytes(), err
}

// toFiles is to_files of the page.
func (p *keyNodes) toFiles(t *testing.T, n *keyNode) {
	t.Helper()
	for name, words := range map[string][]string{"sa.pub": {"list", "-o=pem"}, "sa.key": {"export", "--private"}} {
		words = append(append([]string{"keys"}, words...), "--service-account-key-ring="+n.ring())
		pem, err := exec.CommandContext(limited(t), p.binary.Path, words...).Output()
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, n.pki(name), pem)
	}
}

// ring is the ring file of a node.
func (n *keyNode) ring() string { return n.pki("sa-keys/ring.json") }

// copyRing is copy_ring of the page.
func (p *keyNodes) copyRing(t *testing.T) {
	t.Helper()
	command := fmt.Sprintf("umask 077 && tar -C %s -cf - sa.key sa.pub | tar -C %s -xpf - && %s keys import --service-account-key-ring=%s %s",
		p.first.pki(""), p.second.pki(""), p.binary.Path, p.second.ring(), p.first.ring())
	if out, err := exec.CommandContext(limited(t), "sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// distribute brings a change to the other node and, where kube-apiserver has to be told, to that: on one node after the
// other, and all is judged in between. Without a word for the moment nobody has to be told.
func (p *keyNodes) distribute(t *testing.T, ring keyRing, when string) {
	t.Helper()
	p.toFiles(t, p.first)
	p.copyRing(t)
	for _, node := range p.nodes() {
		node.awaitGeneration(t, ring)
	}
	if p.signer || when == "" {
		return
	}
	for _, node := range p.nodes() {
		p.restart(t, node)
		p.judge(t, when+", "+node.name+" was restarted", "", "")
	}
}

func (n *keyNode) awaitGeneration(t *testing.T, ring keyRing) {
	t.Helper()
	poll(t, "await that "+n.name+" follows", func(ctx context.Context) error {
		metrics, err := n.manager.Metrics(ctx)
		if err != nil {
			return err
		}
		if got := metrics.Sum("sacm_key_ring_generation", nil); got != float64(ring.Generation) {
			return fmt.Errorf("generation %v, want %d", got, ring.Generation)
		}
		return nil
	})
}

func (p *keyNodes) restart(t *testing.T, n *keyNode) {
	t.Helper()
	n.away.Store(true)
	// In order, it would first wait a minute for its watches to end.
	if err := errors.Join(n.KillAPIServer(), n.StartAPIServer(t.Context())); err != nil {
		t.Fatal(err)
	}
	n.away.Store(false)
}

// audiences are in every token, one for each judgement: kube-apiserver remembers what it has accepted for ten seconds.
func audiences() []string {
	var all []string
	for step := range 30 {
		all = append(all, fmt.Sprintf("step-%d", step))
	}
	return all
}

// signs is the ID of the key that kube-apiserver signs with.
func (n *keyNode) signs(t *testing.T) string {
	t.Helper()
	token, err := n.request(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return keyIDOf(t, token)
}

func (n *keyNode) request(ctx context.Context) (string, error) {
	answer, err := n.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(ctx, "default", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences()},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}

func (n *keyNode) accepts(ctx context.Context, token string, audiences ...string) (bool, error) {
	review, err := n.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Authenticated, nil
}

// judge has each kube-apiserver issue a token, and wants each to accept all tokens so far. first and
// second are the keys to sign with, "" for any.
func (p *keyNodes) judge(t *testing.T, when, first, second string) {
	t.Helper()
	p.issue(t, when, first, second)
	p.review(t, when, "")
}

func (p *keyNodes) issue(t *testing.T, when, first, second string) {
	t.Helper()
	for i, node := range p.nodes() {
		want := []string{first, second}[i]
		var token, id string
		poll(t, when+": "+node.name+" signs with "+want, func(ctx context.Context) (err error) {
			if token, err = node.request(ctx); err != nil {
				return err
			}
			if id = keyIDOf(t, token); want != "" && id != want {
				return fmt.Errorf("it signs with %s", id)
			}
			return nil
		})
		p.good = append(p.good, issued{"of " + node.name + ", " + when, token, id})
	}
}

// review wants each kube-apiserver to accept all tokens, except that the second one refuses those of
// the key that it lacks, if any.
func (p *keyNodes) review(t *testing.T, when, lacked string) {
	t.Helper()
	audience := audiences()[p.step]
	p.step++
	refused := 0
	for _, node := range p.nodes() {
		for _, one := range p.good {
			var asked []string
			if one.keyID != "" {
				asked = []string{audience}
			}
			want := lacked == "" || node != p.second || one.keyID != lacked
			if ok, err := node.accepts(t.Context(), one.token, asked...); err != nil || ok != want {
				t.Errorf("%s: %s accepts the token %s (key %s): %t, want %t: %v", when, node.name, one.what, one.keyID, ok, want, err)
			}
			if !want {
				refused++
			}
		}
	}
	if lacked != "" && refused == 0 {
		t.Errorf("%s: no token is signed with key %s", when, lacked)
	}
	t.Logf("%s: %d reviews of %d tokens, %d refused as predicted", when, 2*len(p.good), len(p.good), refused)
}

func (p *keyNodes) tokensOf(id string) []issued {
	var all []issued
	for _, one := range p.good {
		if one.keyID == id {
			all = append(all, one)
		}
	}
	return all
}

func (p *keyNodes) forget(id string) {
	p.good = slices.DeleteFunc(p.good, func(one issued) bool { return one.keyID == id })
}

// dead wants tokens to be refused everywhere.
func (p *keyNodes) dead(t *testing.T, tokens []issued) {
	t.Helper()
	if len(tokens) == 0 {
		t.Error("no token of the pruned key")
	}
	for _, node := range p.nodes() {
		for _, one := range tokens {
			poll(t, node.name+" refuses the token "+one.what, func(ctx context.Context) error {
				ok, err := node.accepts(ctx, one.token, audiences()[p.step])
				if err == nil && ok {
					err = errors.New("it accepts it")
				}
				return err
			})
		}
	}
}

// load asks both kube-apiservers all the while.
type load struct {
	stop             context.CancelFunc
	working          sync.WaitGroup
	reviewed, failed atomic.Int64
}

func (p *keyNodes) startLoad(t *testing.T) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel}
	for _, issuer := range p.nodes() {
		l.working.Go(func() {
			for ctx.Err() == nil {
				token, err := issuer.request(ctx)
				if !p.counts(ctx, issuer, err) {
					continue
				}
				if err != nil {
					l.failed.Add(1)
					t.Errorf("%s issues no token: %v", issuer.name, err)
					continue
				}
				for _, verifier := range p.nodes() {
					ok, err := verifier.accepts(ctx, token, audiences()[0])
					if !p.counts(ctx, verifier, err) {
						continue
					}
					l.reviewed.Add(1)
					if err != nil || !ok {
						l.failed.Add(1)
						t.Errorf("%s does not accept a token that %s has just issued: %v", verifier.name, issuer.name, err)
					}
				}
				pause(ctx, 50*time.Millisecond)
			}
		})
	}
	return l
}

// counts reports whether an answer counts: that of a kube-apiserver that is being restarted does not.
func (p *keyNodes) counts(ctx context.Context, n *keyNode, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	if err != nil && (n.away.Load() || !answered(err)) && !p.signer {
		pause(ctx, 100*time.Millisecond)
		return false
	}
	return true
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.working.Wait()
	t.Logf("under load: %d reviews, %d failures", l.reviewed.Load(), l.failed.Load())
	if l.reviewed.Load() == 0 {
		t.Error("nothing was reviewed")
	}
}

// keyIDOf reads the header of a token.
func keyIDOf(t *testing.T, token string) string {
	t.Helper()
	header, _, _ := strings.Cut(token, ".")
	data, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		t.Fatal(err)
	}
	var fields struct {
		KeyID string `json:"kid"`
	}
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	return fields.KeyID
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
