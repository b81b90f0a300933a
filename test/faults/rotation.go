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
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

const (
	// rotateAtMost is how long faults come while keys are rotated: each rotation has the Secrets of all accounts re-issued.
	rotateAtMost = 3 * time.Minute
	// reissueTimeout is what is waited longer in the end: ten Secrets are begun in a second.
	reissueTimeout = 45 * time.Second
	// tokenPace is how often a token is requested.
	tokenPace = 200 * time.Millisecond
)

// interrupting are the faults that interrupt what is done in several steps. While nobody answers a rotation waits, so they are
// short ones.
func interrupting() []Entry {
	return slices.DeleteFunc(Processes(), func(entry Entry) bool { return entry.For > 2*time.Second })
}

// Rotation has an operator rotate the keys of two replicas of its own control plane, again and again, while a workload churns
// and faults interrupt what they do about it, and then judges. kube-apiserver has its tokens signed by the first replica. The
// operator runs the commands of an ordinary build. Others may use the machine. logs is World.Logs.
func Rotation(ctx context.Context, replicas, commands devcluster.Binary, seed uint64,
	length time.Duration, logs string, log func(format string, args ...any)) (outcome checker.Outcome, summary string, err error) {
	var o *operator
	replicas = quickPings(replicas)
	w, err := start(ctx, log, func(w *World) error {
		o = &operator{world: w, binary: commands, random: rand.New(rand.NewPCG(seed, 1<<32))}
		_, err := o.keys(ctx, o.ring(0), "init", "--from-private-key-file="+w.cluster.SigningKeyFile())
		if err == nil {
			err = w.launch(replicas,
				o.flags(0, "--external-signer-socket="+w.cluster.SignerSocket(), "--external-signer-refresh-hint=1s")...)
		}
		return err
	})
	if err != nil {
		return outcome, "", err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	w.Busy, w.Logs = true, logs
	if err := errors.Join(o.distribute(ctx), w.launch(replicas, o.flags(1)...), w.calm(ctx)); err != nil {
		return outcome, "", err
	}
	t := &tokenUser{world: w}
	users := workload.StartWorkload(w.client, seed, "rotation")
	during, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	var rotateErr error
	working.Go(func() { rotateErr = o.rotate(during) })
	working.Go(func() { t.run(during) })
	err = w.strike(ctx, rand.New(rand.NewPCG(seed, 0)), interrupting(), min(length/3, rotateAtMost))
	stop()
	working.Wait()
	model, calls, endErr := users.End()
	if err := errors.Join(err, rotateErr, endErr); err != nil {
		return outcome, "", err
	}
	ring, err := o.left(ctx, t)
	if err != nil {
		return outcome, "", err
	}
	outcome, err = w.check(ctx, scope{
		model: model, calls: calls, lasts: stayWell, timeout: settleTimeout + reissueTimeout, rotated: ring, bound: t.bound(ring),
	})
	outcome.Violations = append(outcome.Violations, t.found...)
	outcome.Operations, outcome.Injected = users.Operations(), w.injected
	return outcome, fmt.Sprintf("settled in %s; %d commands, %d of them killed; %d token Secrets that replace one, %d requested tokens",
		outcome.Settled.Round(100*time.Millisecond), o.done, o.killed, outcome.Reissued, len(t.questions)), err
}

// tokenUser requests tokens of one account, uses each of them at once, and remembers it.
type tokenUser struct {
	world     *World
	questions []question
	found     []checker.Violation
}

// run goes on until ctx ends. While kube-apiserver or the signer is away it gets nothing, which is no fault; but what it is
// given is good.
func (t *tokenUser) run(ctx context.Context) {
	for await.Sleep(ctx, tokenPace) {
		q, err := t.request(ctx)
		if err != nil {
			continue
		}
		t.questions = append(t.questions, q)
		wrong, err := t.world.askAbout(ctx, q)
		if err == nil && wrong != "" {
			t.found = append(t.found, checker.Violated(4, "kube-apiserver does not take %s at once: %s", q.secret, wrong))
		}
	}
}

func (t *tokenUser) request(ctx context.Context) (question, error) {
	ctx, cancel := context.WithTimeout(ctx, workload.AttemptTimeout)
	defer cancel()
	accounts := t.world.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	account, err1 := accounts.Get(ctx, workload.DefaultAccount, metav1.GetOptions{})
	answer, err2 := accounts.CreateToken(ctx, workload.DefaultAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	return question{
		token: answer.Status.Token, secret: "a TokenRequest, key " + checker.SignedWith(answer.Status.Token), atOnce: true,
		want: "system:serviceaccount:" + metav1.NamespaceDefault + ":" + workload.DefaultAccount, uid: account.UID,
	}, errors.Join(err1, err2)
}

// bound are questions about all tokens whose key is in the ring: each has to be good still.
func (t *tokenUser) bound(ring *checker.KeyRing) []question {
	return slices.DeleteFunc(slices.Clone(t.questions), func(q question) bool { return ring.Keys[checker.SignedWith(q.token)] == nil })
}

const (
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
