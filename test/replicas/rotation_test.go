// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"errors"
	"fmt"
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

// TestRotateOnTwoNodes does what docs/rotation.md says about several control-plane nodes: rotations, the way back and a
// leak, with kube-apiserver, process with the external signer and copy of the key ring on each of two hosts. At every moment
// each kube-apiserver accepts the tokens of both, and those that were issued before.
func TestRotateOnTwoNodes(t *testing.T) {
	await.Long(t)
	t.Parallel()
	p := newKeyNodes(t)
	first := p.first.signs(t)
	p.exportsSignerMetrics(t)
	p.judge(t, "before", first, first)

	ring := p.keys(t, p.first, "next", "--algorithm=P-256")
	second := ring.next()
	p.refuses(t, "host cp-2 does not have the next key "+second, p.first, "rotate", "--cache-age=0s")
	p.distribute(t, ring)
	for _, node := range p.nodes() {
		list := p.keys(t, node, "list")
		refused := slices.ContainsFunc(list.Keys, func(key ringKey) bool {
			return key.Accepted != "yes" && (key.ID == first || key.ID == second)
		})
		if list.Generation != ring.Generation || list.next() != second || refused {
			t.Errorf("the list on %s: %+v, want generation %d with both keys accepted", node.name, list, ring.Generation)
		}
	}

	ring = p.keys(t, p.first, "rotate", "--wait", "--cache-age=0s")
	third := ring.next()
	p.first.awaitGeneration(t, ring)
	p.judge(t, "rotated, one node has the copy", second, second)
	p.refuses(t, "host cp-2 does not have the next key "+third, p.first, "rotate", "--cache-age=0s")
	p.distribute(t, ring)
	p.judge(t, "rotated", second, second)

	if ring = p.keys(t, p.first, "rollback"); ring.next() != "" {
		t.Errorf("after a rollback from another kind of key %s is next", ring.next())
	}
	ring = p.keys(t, p.first, "next")
	p.distribute(t, ring)
	p.judge(t, "rolled back", first, first)
	p.leak(t, first, ring.next())
}

// leak revokes the active key on the first node. No copy is made: the other node follows what is published.
func (p *keyNodes) leak(t *testing.T, leaked, next string) {
	t.Helper()
	dead := append(p.tokensOf(leaked), p.forged(t, leaked))
	p.accepted(t, dead)
	p.refuses(t, "give --yes to revoke the key", p.first, "revoke", leaked)
	begun := time.Now()
	p.keys(t, p.first, "revoke", leaked, "--yes")
	p.dead(t, dead)
	took := time.Since(begun).Round(time.Millisecond)
	if t.Logf("the last token of the key was refused after %s", took); took > 12*time.Second {
		t.Errorf("tokens of the key were accepted for up to %s", took)
	}
	p.forget(leaked)
	p.hold(t, next)
	p.judge(t, "revoked, one node has the copy", next, next)
}

// exportsSignerMetrics wants of each kube-apiserver the series by which the alert SACMSignerMissing
// tells one with the external signer from one with key files.
func (p *keyNodes) exportsSignerMetrics(t *testing.T) {
	t.Helper()
	for _, node := range p.nodes() {
		text, err := node.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		testutil.Must(t, err)
		for _, series := range []string{"apiserver_externaljwt_fetch_keys_success_timestamp", "apiserver_current_inflight_requests"} {
			if !strings.Contains(string(text), "\n"+series) {
				t.Errorf("%s does not export %s", node.name, series)
			}
		}
	}
}

// forged is a token that a thief of a key makes, who has a copy of the ring file.
func (p *keyNodes) forged(t *testing.T, id string) issued {
	t.Helper()
	state, err := ring.At(p.first.ring()).Read()
	testutil.Must(t, err)
	key, _ := state.Key(id)
	account, err := p.first.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(t.Context(), "default", metav1.GetOptions{})
	testutil.Must(t, err)
	token, err := tokens.NewIssuer(key.Private, tokens.CompatClaims).Bound(t.Context(), tokens.BoundRequest{
		Issuer: p.first.Issuer(), Audiences: append(audiences(), p.first.Issuer()), Lifetime: time.Hour,
		Account: tokens.Account{Namespace: account.Namespace, Name: account.Name, UID: string(account.UID)},
	})
	testutil.Must(t, err)
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
			if ok, err := node.accepts(t.Context(), one.token, asked...); err != nil || !ok {
				t.Errorf("%s: %s does not accept the token %s (key %s): %v", when, node.name, one.what, one.keyID, err)
			}
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
			if ok, err := node.accepts(t.Context(), one.token, audiences()[p.step]); err != nil || !ok {
				t.Errorf("%s does not accept the token %s: %v", node.name, one.what, err)
			}
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
