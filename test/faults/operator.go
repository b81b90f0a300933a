// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

const (
	// operatorPace is what the operator waits after each command, at least, and twice that at most: a rotation comes while the
	// Secrets of the last one are at every step.
	operatorPace = 300 * time.Millisecond
	// killedWithin is when a command is killed that is, at most.
	killedWithin = 400 * time.Millisecond
	// commandTimeout is how long it may take until a command has done its work, however often it is run.
	commandTimeout = 90 * time.Second
	// alreadyDone is what a rollback says that was killed when it had done its work.
	alreadyDone = "nothing to go back to"
	// Exit codes of the commands (docs/cli.md): refused, and done with something to see to.
	exitRefused, exitFound = 1, 2
)

// operator rotates the keys of all replicas as docs/rotation.md says: by commands on the key ring of the first one, of which
// the others have copies. Now and then a command is killed, and run again.
type operator struct {
	world        *World
	binary       devcluster.Binary
	random       *rand.Rand
	done, killed int
}

func (o *operator) ring(replica int) string {
	return filepath.Join(o.world.cluster.Dir(), fmt.Sprintf("sa-keys-%d", replica), "ring.json")
}

// flags have a replica sign with its ring.
func (o *operator) flags(replica int, others ...string) []string {
	return append([]string{"--service-account-private-key-file=", "--service-account-key-ring=" + o.ring(replica)}, others...)
}

// keys runs a command and returns what it prints.
func (o *operator) keys(ctx context.Context, ring string, words ...string) ([]byte, error) {
	printed, err := o.binary.Run(ctx, append(append([]string{"keys"}, words...), "--service-account-key-ring="+ring)...)
	if exitCode(err) == exitFound {
		err = nil
	}
	return printed, err
}

// exitCode is that of a command that has ended with one, -1 of any other error.
func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}

// distribute gives the other replica a copy of the key ring.
func (o *operator) distribute(ctx context.Context) error {
	_, err := o.keys(ctx, o.ring(1), "import", o.ring(0))
	return err
}

// rotate rotates until ctx ends. A command that has begun is finished. In every third one the next key is replaced before, in
// the one after it the previous key comes back.
func (o *operator) rotate(ctx context.Context) error {
	for way := o.random.IntN(3); ctx.Err() == nil; way++ {
		var steps [][]string
		if way%3 == 0 {
			steps = append(steps, []string{"next", "--algorithm=" + []string{"P-256", "RSA-2048", "P-384"}[o.random.IntN(3)]})
		}
		steps = append(steps, []string{"rotate", "--wait", "--cache-age=0s"})
		if way%3 == 1 {
			steps = append(steps, []string{"rollback"})
		}
		steps = append(steps, []string{"prune", "--longest-token-lifetime=1h"})
		for i := 0; i < len(steps) && ctx.Err() == nil; i++ {
			if err := o.step(ctx, append(steps[i], "--kubeconfig="+o.world.cluster.Kubeconfig())); err != nil {
				return err
			}
		}
	}
	return nil
}

// step runs a command until it has done its work, and gives the other replica the result. A rotation that was killed, or has
// failed, may be over: then the next one needs the copy, too.
func (o *operator) step(ctx context.Context, words []string) error {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	if o.random.IntN(2) == 0 {
		o.kill(limit, words)
		if err := o.distribute(limit); err != nil {
			return err
		}
	}
	err := workload.Retry(limit, "keys "+strings.Join(words, " "), func(ctx context.Context) error {
		_, err := o.keys(ctx, o.ring(0), words...)
		if err == nil || strings.Contains(err.Error(), alreadyDone) || words[0] == "prune" && exitCode(err) == exitRefused {
			return o.distribute(limit)
		}
		return errors.Join(err, o.distribute(limit)) // ctx may be over
	})
	o.world.log("%s keys %s is done", time.Now().Format("15:04:05"), words[0])
	o.done++
	await.Sleep(ctx, operatorPace+time.Duration(o.random.Int64N(int64(operatorPace))))
	return err
}

// kill runs a command and kills it on the way, if it is not faster.
func (o *operator) kill(ctx context.Context, words []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.random.Int64N(int64(killedWithin))))
	defer cancel()
	if _, err := o.keys(ctx, o.ring(0), words...); err != nil && ctx.Err() != nil {
		o.killed++
	}
}

// left is the ring that the operator has left, once kube-apiserver has tokens signed with its active key. The signer may have
// read the last change a moment later than the operator made it.
func (o *operator) left(ctx context.Context, t *tokenUser) (*checker.KeyRing, error) {
	dir := filepath.Dir(o.ring(0))
	_, err := o.keys(ctx, o.ring(0), "export", "--kubeadm="+dir)
	public, err1 := os.ReadFile(filepath.Join(dir, "sa.pub"))
	printed, err2 := o.keys(ctx, o.ring(0), "list", "-o=json")
	var list struct {
		Keys []struct{ ID, Role string } `json:"keys"`
	}
	if err := errors.Join(err, err1, err2, json.Unmarshal(printed, &list)); err != nil {
		return nil, err
	}
	ring := &checker.KeyRing{Keys: map[string]crypto.PublicKey{}}
	for block, rest := pem.Decode(public); block != nil; block, rest = pem.Decode(rest) {
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read the key ring: %w", err)
		}
		ring.Keys[checker.KeyIDOf(block.Bytes)] = key
	}
	for _, key := range list.Keys {
		if key.Role == "active" {
			ring.Active = key.ID
		}
	}
	ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
	defer cancel()
	return ring, workload.Retry(ctx, "have tokens signed with the active key", func(ctx context.Context) error {
		q, err := t.request(ctx)
		if id := checker.SignedWith(q.token); err == nil && id != ring.Active {
			err = fmt.Errorf("kube-apiserver has tokens signed with key %q, want the active key %q", id, ring.Active)
		}
		return err
	})
}
