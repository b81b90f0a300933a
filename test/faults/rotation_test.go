// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/testcluster"
)

const (
	// rotateAtMost is how long faults come while keys are rotated: each rotation has the Secrets of all accounts re-issued.
	rotateAtMost = 3 * time.Minute
	// tokenPace is how often a token is requested.
	tokenPace = 200 * time.Millisecond
	// operatorPace is what the operator waits after each command, at least, and twice that at most: a rotation comes while the
	// Secrets of the last one are at every step.
	operatorPace = 300 * time.Millisecond
	// killedWithin is when a command is killed that is, at most.
	killedWithin = 400 * time.Millisecond
	// commandTimeout is how long it may take until a command has done its work, however often it is run.
	commandTimeout = 90 * time.Second
	// alreadyDone is what a rollback says that was killed when it had done its work.
	alreadyDone = "no rotation to roll back"
	// Exit codes of the commands (docs/cli.md): refused, and done with something to see to.
	exitRefused, exitFound = 1, 2
)

// TestRotation has an operator rotate the keys of two replicas again and again, while users churn and faults interrupt what
// replicas and commands do about it. kube-apiserver has its tokens signed by the first replica.
func TestRotation(t *testing.T) {
	o := &operator{random: rand.New(rand.NewPCG(*seed, 1<<32))}
	o.world = newWorld(t, workload.Auto, func(w *world) error {
		o.world = w
		_, err := o.keys(t.Context(), o.ring(0), "init", "--from-private-key-file="+w.cluster.SigningKeyFile())
		if err == nil {
			w.launch(t, o.flags(0, "--external-signer-socket="+w.cluster.SignerSocket(), "--external-signer-refresh-hint=1s")...)
		}
		return err
	})
	testutil.Must(t, o.distribute(t.Context()))
	o.world.launch(t, o.flags(1)...)
	o.world.calm(t)
	o.world.churn(t)
	o.world.working.Go(func() { testutil.CheckError(t, "rotate", "", o.rotate(o.world.during)) })
	o.world.working.Go(func() { o.useTokens(o.world.during, t) })
	o.world.strike(t, interrupting, min(*length/3, rotateAtMost))
	model := o.world.end()

	roles := o.roles(t)
	active := ""
	for id, role := range roles {
		if role == "active" {
			active = id
		}
	}
	testcluster.Poll(t, "have tokens signed with the active key", func() error {
		q, err := o.request(t.Context())
		if id := checker.SignedWith(q.token); err == nil && id != active {
			err = fmt.Errorf("key %s signs, want %s", id, active)
		}
		return err
	})
	o.world.check(t, model, active)
	var bound []question // whose key is in the ring
	for _, q := range o.requested {
		if roles[checker.SignedWith(q.token)] != "" {
			bound = append(bound, q)
		}
	}
	o.world.ask(t, bound)
	t.Logf("%d commands, %d of them killed; %d requested tokens, %d with a key that is there", o.done, o.killed, len(o.requested),
		len(bound))
}

// operator rotates the keys of all replicas as docs/rotation.md says: by commands on the key ring of the first one, of which
// the others have copies. Now and then a command is killed, and run again.
type operator struct {
	world        *world
	random       *rand.Rand
	done, killed int
	requested    []question // tokens of one account
}

// useTokens requests tokens and uses each of them at once. While kube-apiserver or the signer is away it gets nothing, which is no
// fault; but what it is given is good.
func (o *operator) useTokens(ctx context.Context, t *testing.T) {
	for await.Sleep(ctx, tokenPace) {
		q, err := o.request(ctx)
		if err != nil {
			continue
		}
		o.requested = append(o.requested, q)
		if err := o.world.answer(ctx, q); strings.Contains(fmt.Sprint(err), "takes it for") {
			t.Errorf("promise 4: %s, used at once: %v", q.what, err)
		}
	}
}

func (o *operator) request(ctx context.Context) (question, error) {
	ctx, cancel := context.WithTimeout(ctx, workload.AttemptTimeout)
	defer cancel()
	accounts := o.world.API.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	account, err1 := accounts.Get(ctx, workload.DefaultAccount, metav1.GetOptions{})
	answer, err2 := accounts.CreateToken(ctx, workload.DefaultAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	return question{
		token: answer.Status.Token, what: "a requested token of key " + checker.SignedWith(answer.Status.Token), atOnce: true,
		want: "system:serviceaccount:" + metav1.NamespaceDefault + ":" + workload.DefaultAccount, uid: account.UID,
	}, errors.Join(err1, err2)
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
	printed, err := o.world.binary.Run(ctx, append(append([]string{"keys"}, words...), "--service-account-key-ring="+ring)...)
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

// roles are those of the keys of the ring that the operator has left, by ID.
func (o *operator) roles(t *testing.T) map[string]string {
	t.Helper()
	printed := testutil.Get(o.keys(t.Context(), o.ring(0), "list", "-o=json"))(t)
	var list struct {
		Keys []struct{ ID, Role string }
	}
	testutil.Must(t, json.Unmarshal(printed, &list))
	roles := map[string]string{}
	for _, key := range list.Keys {
		roles[key.ID] = key.Role
	}
	return roles
}
