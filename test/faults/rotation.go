// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

const (
	// rotateAtMost bounds how long keys are rotated: each rotation has the Secrets of all accounts
	// re-issued, and accounts come all the time.
	rotateAtMost = 3 * time.Minute
	// reissueTimeout is what is waited longer for that in the end: ten Secrets are begun in a
	// second.
	reissueTimeout = 2 * time.Minute
)

// interrupting are the kinds of faults that strike while keys are rotated: those that interrupt
// what is done in several steps, or hide from one leader what another one has done.
func interrupting() []Entry {
	kinds := []checker.Kind{
		"replica-killed", "leader-killed", "leader-paused", "leader-partitioned", "apiserver-killed", "etcd-compacted",
		"watches-cut", "watches-expired", "watches-delayed", "conflict-409", "internal-error-500", "timeout-after-commit", "answer-dropped",
	}
	return slices.DeleteFunc(Catalogue(), func(entry Entry) bool { return !slices.Contains(kinds, entry.Kind) })
}

// StartRotating starts a control plane whose kube-apiserver has its tokens signed by the first of
// the replicas, and that replica. All of them will have a key ring.
func StartRotating(ctx context.Context, binary devcluster.Binary, log func(format string, args ...any)) (*World, error) {
	w, err := newWorld(log)
	if err != nil {
		return nil, err
	}
	_, err = devcluster.Start(ctx, devcluster.Options{
		ExternalSigner: true,
		// kube-apiserver does not start without a signer.
		BeforeAPIServer: func(cluster *devcluster.Cluster) error {
			w.cluster = cluster
			ordinary, err := w.ordinaryRights(quickPings(binary))
			if err != nil {
				return err
			}
			w.operator = &operator{world: w, binary: ordinary}
			return w.launch(ctx, 0, ordinary, nil)
		},
	})
	if err != nil {
		return nil, err // what was started has been stopped
	}
	if err := w.connect(); err != nil {
		return nil, errors.Join(err, w.cluster.Stop())
	}
	return w, nil
}

// Rotation has an operator rotate the keys of two replicas, again and again, while a workload
// churns and faults interrupt what they do about it, and then judges. The world is one of
// StartRotating, whose binary it is.
func (w *World) Rotation(ctx context.Context, run Run) (checker.Outcome, string, error) {
	w.monitor.setRace(run.Race)
	if err := w.deploy(ctx, w.operator.binary, 2); err != nil {
		return checker.Outcome{}, "", err
	}
	tokenUser, err := w.startTokenUser(ctx)
	if err != nil {
		return checker.Outcome{}, "", err
	}
	users := workload.StartWorkload(w.client, run.Seed, "rotation")
	rotating := w.operator.start(run.Seed)
	err = w.execute(ctx, Plan(run.Seed, min(run.Length, rotateAtMost), 2, interrupting()))
	err = errors.Join(err, rotating.end())
	model, calls, endErr := users.End()
	tokenUser.end()
	if err := errors.Join(err, endErr); err != nil {
		return checker.Outcome{}, "", err
	}
	ring, err := w.ring(ctx)
	if err != nil {
		return checker.Outcome{}, "", err
	}
	operation, err := w.tidyPair(ctx, model)
	if err != nil {
		return checker.Outcome{}, "", err
	}
	outcome, err := w.check(ctx, scope{model: model, lasts: stayWell, ring: ring, bound: tokenUser.bound(ring)}, calls,
		settleTimeout+reissueTimeout)
	outcome.Violations = append(outcome.Violations, tokenUser.found...)
	outcome.Operations = users.Operations()
	outcome.Operations[operation]++
	maps.Copy(outcome.Operations, rotating.operations)
	summary := fmt.Sprintf("settled in %s; %d keys activated, %d taken back, %d commands killed; %d token Secrets that replace one, "+
		"%d requested tokens",
		outcome.Settled.Round(100*time.Millisecond), outcome.Operations[activated], outcome.Operations[rolledBack], outcome.Operations[killed],
		outcome.Reissued, outcome.Bound)
	return outcome, summary, errors.Join(err, w.retire())
}

// tidyPair removes the older half of a re-issue pair from the list of an account, once there is such
// a pair: most Secrets are re-issued when the users of the workload have ended.
func (w *World) tidyPair(ctx context.Context, model workload.Model) (operation string, err error) {
	for deadline := time.Now().Add(settleTimeout); ; {
		for _, name := range slices.Sorted(maps.Keys(model)) {
			account, err := w.client.ReissuePair(ctx, model[name])
			if err != nil {
				return "", err
			}
			if account != "" {
				return w.client.EditReferences(ctx, model[name], account, 1)
			}
		}
		if time.Now().After(deadline) || !await.Sleep(ctx, time.Second) {
			return "find no re-issue pair", nil
		}
	}
}
