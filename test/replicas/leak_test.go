// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/tokens"

	"sa-controller-manager/test/await"
)

// refusedWithin is the promise of docs/rotation.md, for a host that can be reached.
const refusedWithin = 12 * time.Second

// TestLeakOnThreeNodes does what docs/rotation.md says after a leak, pasted on a node whose ring is late, while another
// one is down with the leaked key in its file. Then every key that the late one has leaks.
func TestLeakOnThreeNodes(t *testing.T) {
	await.Long(t)
	t.Parallel()
	p := newKeyNodes(t, "cp-3")
	first := p.first.signs(t)
	p.exportsSignerMetrics(t)
	ring := p.keys(t, p.first, "rotate", "--wait", "--cache-age=0s")
	p.copyRing(t, p.third)
	p.first.awaitGeneration(t, ring)
	p.third.awaitGeneration(t, ring)
	leaked, next := ring.active(), ring.next()
	p.judge(t, "cp-2 is late", leaked, leaked, leaked)
	dead := append(p.tokensOf(leaked), p.forged(t, leaked))
	p.accepted(t, dead)
	p.stop(t, p.third)

	begun := time.Now()
	p.leaks(t, p.second, "cp-3")
	p.dead(t, dead)
	took := time.Since(begun)
	testutil.Expect(t, took <= refusedWithin, "tokens of the leaked key were accepted for up to %s", took)
	p.forget(leaked)
	p.issue(t, "revoked on the late node", next, first) // which refuses tokens of the next key, as it does not have it
	for _, node := range p.nodes() {                    // the page says to paste it again
		said := p.leaks(t, node, "cp-3")
		testutil.Expect(t, strings.Contains(said, "nothing more is revoked"), "pasted again on %s: %s", node.name, said)
	}
	p.issue(t, "pasted again", next, first)

	p.start(t, p.third) // with the leaked key in its file
	p.dead(t, dead)
	p.issue(t, "the third node is back", next, first, next)
	poll(t, "nothing is left to do", func(context.Context) error {
		_, stderr, err := p.run(t, p.first, "revoke", "--active", "--yes")
		if err != nil {
			err = errors.New(string(stderr))
		}
		return err
	})

	// All keys that the late node has.
	dead = p.tokensOf(first)
	p.accepted(t, dead)
	begun = time.Now()
	ring = p.keys(t, p.first, "revoke", first, "--yes")
	p.dead(t, dead)
	if took := time.Since(begun); took > refusedWithin {
		t.Errorf("tokens of the last key of the late node were accepted for up to %s", took)
	}
	p.forget(first)
	if token, err := p.second.request(t.Context()); err == nil {
		t.Errorf("a node without a key has issued a token of %s", keyIDOf(t, token))
	}
	p.distribute(t, ring)
	p.judge(t, "copied", next, next, next)
	for _, node := range p.nodes() {
		p.keys(t, node, "list") // no findings
	}
}

// leaks pastes what the page says on a node, while another one cannot be asked, which the command names.
func (p *keyNodes) leaks(t *testing.T, n *keyNode, unasked string) string {
	t.Helper()
	stdout, stderr, err := p.run(t, n, "revoke", "--active", "--yes")
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 || !strings.Contains(string(stderr), unasked) {
		t.Errorf("on %s: %v, want exit code 1 and %s:\n%s%s", n.name, err, unasked, stdout, stderr)
	}
	return string(stderr)
}

// stop has a node lose power.
func (p *keyNodes) stop(t *testing.T, n *keyNode) {
	t.Helper()
	_, err := n.manager.Kill()
	testutil.Must(t, errors.Join(err, n.KillAPIServer()))
	n.down = true
}

func (p *keyNodes) start(t *testing.T, n *keyNode) {
	t.Helper()
	testutil.Must(t, p.startManager(n))
	testutil.Must(t, n.StartAPIServer(t.Context()))
	n.down = false
	testutil.Must(t, n.manager.Ready(limited(t)))
}

// exportsSignerMetrics wants of each kube-apiserver the series by which the alert SACMSignerMissing
// tells one with the external signer from one with key files.
func (p *keyNodes) exportsSignerMetrics(t *testing.T) {
	t.Helper()
	for _, node := range p.nodes() {
		text := testutil.Get(node.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context()))(t)
		for _, series := range []string{"apiserver_externaljwt_fetch_keys_success_timestamp", "apiserver_current_inflight_requests"} {
			testutil.Expect(t, strings.Contains(string(text), "\n"+series), "%s does not export %s", node.name, series)
		}
	}
}

// forged is a token that a thief of a key makes, who has a copy of the ring file.
func (p *keyNodes) forged(t *testing.T, id string) issued {
	t.Helper()
	state := testutil.Get(ring.At(p.first.ring()).Read())(t)
	key, _ := state.Key(id)
	account, err := p.first.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(t.Context(), "default", metav1.GetOptions{})
	testutil.Must(t, err)
	token := testutil.Get(tokens.NewIssuer(key.Private, tokens.CompatClaims).Bound(t.Context(), tokens.BoundRequest{
		Issuer: p.first.Issuer(), Audiences: append(audiences(), p.first.Issuer()), Lifetime: time.Hour,
		Account: tokens.Account{Namespace: account.Namespace, Name: account.Name, UID: string(account.UID)},
	}))(t)
	return issued{"of a thief", token, id, true}
}

// distribute brings a change to the other nodes.
func (p *keyNodes) distribute(t *testing.T, ring keyRing) {
	t.Helper()
	for _, node := range p.nodes() {
		if node != p.first {
			p.copyRing(t, node)
		}
	}
	for _, node := range p.nodes() {
		node.awaitGeneration(t, ring)
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

// judge has each kube-apiserver issue a token, and wants each to accept all tokens so far. signers are the keys to
// sign with.
func (p *keyNodes) judge(t *testing.T, when string, signers ...string) {
	t.Helper()
	p.issue(t, when, signers...)
	audience := audiences()[p.step]
	p.step++
	for _, node := range p.nodes() {
		for _, one := range p.good {
			var asked []string
			if one.bound {
				asked = []string{audience}
			}
			ok, err := node.accepts(t.Context(), one.token, asked...)
			testutil.Expect(t, err == nil && ok, "%s: %s does not accept the token %s (key %s): %v", when, node.name, one.what, one.keyID,
				err)
		}
	}
	t.Logf("%s: %d reviews of %d tokens", when, len(p.nodes())*len(p.good), len(p.good))
}

// issue has each kube-apiserver issue a token with a key.
func (p *keyNodes) issue(t *testing.T, when string, signers ...string) {
	t.Helper()
	for i, node := range p.nodes() {
		want := signers[i]
		var token, id string
		poll(t, when+": "+node.name+" signs with "+want, func(ctx context.Context) (err error) {
			if token, err = node.request(ctx); err != nil {
				return err
			}
			if id = keyIDOf(t, token); id != want {
				return fmt.Errorf("it signs with %s", id)
			}
			return nil
		})
		p.good = append(p.good, issued{"of " + node.name + ", " + when, token, id, true})
	}
}

func (p *keyNodes) tokensOf(id string) []issued {
	var all []issued
	for _, one := range p.good {
		if one.keyID == id && one.bound {
			all = append(all, one)
		}
	}
	return all
}

func (p *keyNodes) forget(id string) {
	p.good = slices.DeleteFunc(p.good, func(one issued) bool { return one.keyID == id })
}

// accepted wants tokens to be accepted everywhere.
func (p *keyNodes) accepted(t *testing.T, tokens []issued) {
	t.Helper()
	for _, node := range p.nodes() {
		for _, one := range tokens {
			ok, err := node.accepts(t.Context(), one.token, audiences()[p.step])
			testutil.Expect(t, err == nil && ok, "%s does not accept the token %s: %v", node.name, one.what, err)
		}
	}
}

// dead wants tokens to be refused everywhere.
func (p *keyNodes) dead(t *testing.T, tokens []issued) {
	t.Helper()
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
