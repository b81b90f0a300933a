// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"

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
