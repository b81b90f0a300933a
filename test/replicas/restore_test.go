// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// TestRestore restores ring files, and what etcd knows of them, as docs/rotation.md has it. Of etcd only the Secret of the
// published rings goes back, which is all that keys are read from.
func TestRestore(t *testing.T) {
	await.Long(t)
	t.Parallel()
	p := newKeyNodes(t)
	backup := p.save(t)
	first := p.first.signs(t)
	rotate := func() (ring keyRing) {
		ring = p.keys(t, p.first, "rotate", "--wait", "--cache-age=0s")
		p.distribute(t, ring)
		p.judge(t, fmt.Sprintf("generation %d", ring.Generation), ring.active(), ring.active())
		return ring
	}
	rotate()
	older := read(t, p.first.ring())
	third := rotate()

	// The file of one host is older, then lost.
	for name, breaks := range map[string]func() error{
		"ring-restored": func() error { return os.WriteFile(p.first.ring(), backup.rings[0], 0o600) },
		"ring-lost":     func() error { return os.Remove(p.first.ring()) },
	} {
		testutil.Must(t, breaks())
		p.fallen(t, name, "cp-2")
		p.judge(t, name, third.active(), third.active())
		p.imports(t, p.first, "", p.second.ring())
		p.awaitNoFindings(t)
	}
	p.refuses(t, "is not the one that it has used", p.first, "import", testutil.WriteFile(t, "older.json", older))

	// Those of all hosts are older. The newest copy is from before the last rotation, and has the key that signs now as its
	// next one.
	for i, node := range p.nodes() {
		testutil.Must(t, os.WriteFile(node.ring(), backup.rings[i], 0o600))
	}
	p.fallen(t, "ring-restored", "no other host has it")
	p.imports(t, p.first, "the next key "+third.next()+" is lost", "--accept-older", testutil.WriteFile(t, "copy.json", older))
	p.distribute(t, p.keys(t, p.first, "next")) // as the list says
	p.judge(t, "an older ring was accepted", third.active(), third.active())
	p.awaitNoFindings(t)

	// A leak; then etcd is restored.
	dead := p.tokensOf(first)
	p.distribute(t, p.keys(t, p.first, "revoke", first, "--yes"))
	p.dead(t, dead)
	p.forget(first)
	p.restoreSecret(t, backup)
	poll(t, "the revocation is published again", func(ctx context.Context) error {
		published, err := hosts.Fetch(ctx, p.first.client)
		if err == nil && !published.RevokedID(first) {
			err = errors.New("it is not")
		}
		return err
	})
	p.dead(t, dead)
	p.awaitNoFindings(t)
	p.judge(t, "etcd was restored", third.active(), third.active())

	// All of it: the key is back until it is revoked again.
	all := p.nodes()
	for _, node := range all {
		_, err := node.manager.Kill()
		testutil.Must(t, err)
	}
	p.restoreSecret(t, backup)
	for i, node := range all {
		testutil.Must(t, node.KillAPIServer())
		testutil.Must(t, os.WriteFile(node.ring(), backup.rings[i], 0o600))
	}
	for _, node := range all {
		p.start(t, node)
	}
	p.dead(t, p.tokensOf(third.active()))
	p.good = nil
	back := p.first.signs(t)
	testutil.Require(t, back == first, "key %s signs, want %s, which the backup has", back, first)
	p.issue(t, "all is restored", first, first)
	dead = append(dead, p.tokensOf(first)...)
	p.accepted(t, dead)
	p.keys(t, p.first, "revoke", first, "--yes")
	p.dead(t, dead)
}

// backup is what is restored.
type backup struct {
	rings  [][]byte
	secret map[string][]byte
}

func (p *keyNodes) save(t *testing.T) (b backup) {
	t.Helper()
	for _, node := range p.nodes() {
		b.rings = append(b.rings, read(t, node.ring()))
	}
	poll(t, "both rings are published", func(ctx context.Context) error {
		secret, err := p.first.client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, hosts.SecretName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		published, err := hosts.Read(secret)
		if b.secret = secret.Data; err == nil && len(published.Entries) < 2 {
			err = fmt.Errorf("%d are", len(published.Entries))
		}
		return err
	})
	return b
}

func (p *keyNodes) restoreSecret(t *testing.T, b backup) {
	t.Helper()
	secrets := p.first.client.CoreV1().Secrets(metav1.NamespaceSystem)
	poll(t, "restore the Secret", func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, hosts.SecretName, metav1.GetOptions{})
		if err == nil {
			secret.Data = b.secret
			_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		}
		return err
	})
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	return testutil.Get(os.ReadFile(path))(t)
}

// fallen wants the commands on the first node to say that its file is not the one that it has used, and how to get
// that back, and to change nothing.
func (p *keyNodes) fallen(t *testing.T, code, way string) {
	t.Helper()
	before, _ := os.ReadFile(p.first.ring())
	poll(t, code, func(context.Context) error { // the processes look every 10 s
		stdout, stderr, err := p.run(t, p.first, "list")
		said := string(stdout) + string(stderr)
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.ExitCode() != 2 || !strings.Contains(said, code) || !strings.Contains(said, way) {
			return fmt.Errorf("%w, want exit code 2, %s and %q:\n%s", err, code, way, said)
		}
		return nil
	})
	for _, words := range [][]string{{"rotate", "--cache-age=0s"}, {"next", "--algorithm=P-384"},
		{"prune", "--longest-token-lifetime=1h"}} {
		stdout, stderr, err := p.run(t, p.first, words...)
		testutil.Expect(t, err != nil, "%s: keys %v ends with 0:\n%s%s", code, words, stdout, stderr)
	}
	after, _ := os.ReadFile(p.first.ring())
	testutil.Expect(t, bytes.Equal(before, after), "%s: the file was changed", code)
}

// awaitNoFindings returns once the list of each node has none.
func (p *keyNodes) awaitNoFindings(t *testing.T) {
	t.Helper()
	for _, node := range p.nodes() {
		poll(t, "no findings on "+node.name, func(context.Context) error {
			stdout, stderr, err := p.run(t, node, "list")
			if err != nil {
				err = fmt.Errorf("%w:\n%s%s", err, stdout, stderr)
			}
			return err
		})
	}
}

// imports imports a ring and wants to read what is lost.
func (p *keyNodes) imports(t *testing.T, n *keyNode, lost string, words ...string) {
	t.Helper()
	stdout, stderr, err := p.run(t, n, append([]string{"import"}, words...)...)
	testutil.Require(t, err == nil && strings.Contains(string(stderr), lost), "import %v: %v, want %q to be named:\n%s%s", words, err, lost,
		stdout, stderr)
}
