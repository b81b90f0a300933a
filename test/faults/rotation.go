// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
			err = w.launch(replicas, o.flags(0, "--external-signer-socket="+w.cluster.SignerSocket(), "--external-signer-refresh-hint=1s")...)
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
