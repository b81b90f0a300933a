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

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
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
			p.exportsSignerMetrics(t)
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
			p.refuses(t, "kube-apiserver still signs bound tokens with key "+next, p.first, "prune", "--key-id="+next, p.other(),
				"--longest-token-lifetime=0s", "--hold-down=0s")
			if again := p.keys(t, p.first, "list"); again.Generation != ring.Generation+1 {
				t.Errorf("generation %d, want that the time of the retirement was moved in generation %d", again.Generation, ring.Generation+1)
			}
			p.distribute(t, p.keys(t, p.first, "list"), "rolled back")
			p.judge(t, "rolled back", former, former)

			dead := p.tokensOf(next)
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

// exportsSignerMetrics wants of each kube-apiserver the series by which the alert SACMSignerMissing
// tells one with the external signer from one with key files.
func (p *keyNodes) exportsSignerMetrics(t *testing.T) {
	t.Helper()
	for _, node := range p.nodes() {
		text, err := node.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		testutil.Must(t, err)
		for series, want := range map[string]bool{"apiserver_externaljwt_fetch_keys_success_timestamp": p.signer,
			"apiserver_current_inflight_requests": true} {
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
		if list := p.keys(t, p.first, "list"); slices.ContainsFunc(list.Keys,
			func(key struct{ ID, Role, Accepted string }) bool { return key.ID == id }) {
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
	// In order, it would first wait a minute for its watches to end.
	testutil.Must(t, errors.Join(n.KillAPIServer(), n.StartAPIServer(t.Context())))
}

// judge has each kube-apiserver issue a token, and wants each to accept all tokens so far. first and
// second are the keys to sign with, "" for any.
func (p *keyNodes) judge(t *testing.T, when, first, second string) {
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
	audience := audiences()[p.step]
	p.step++
	for _, node := range p.nodes() {
		for _, one := range p.good {
			var asked []string
			if one.keyID != "" {
				asked = []string{audience}
			}
			if ok, err := node.accepts(t.Context(), one.token, asked...); err != nil || !ok {
				t.Errorf("%s: %s does not accept the token %s (key %s): %v", when, node.name, one.what, one.keyID, err)
			}
		}
	}
	t.Logf("%s: %d reviews of %d tokens", when, 2*len(p.good), len(p.good))
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
