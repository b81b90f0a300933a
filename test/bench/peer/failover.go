// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/devcluster"
)

// failover ends the leading one of two replicas: how long it takes until the next token Secret is filled. How many Pods
// are refused meanwhile, TestServiceDrain counts. The standby of one repetition leads in the next.
func (o *Options) failover(ctx context.Context) error {
	return onFresh(ctx, devcluster.Options{}, func(ctx context.Context, w *world) error {
		for _, program := range []string{kcm, ours} {
			leader, err := o.replica(ctx, w, program)
			if err != nil {
				return err
			}
			if _, err := w.complete(ctx, leader, []string{accountOf(program, "default")}, 1, func(ctx context.Context, _ int) error {
				return w.makeNamespace(ctx, program)
			}); err != nil {
				return err
			}
			for i := range 2 * o.Sizes.Repetitions {
				if leader, err = o.succeed(ctx, w, leader, i%2 == 0); err != nil {
					return fmt.Errorf("%s: %w", program, err)
				}
			}
			if _, err := leader.Stop(); err != nil {
				return err
			}
		}
		return nil
	})
}

// replica starts one that takes part in the election, and waits until it is ready to take over.
func (o *Options) replica(ctx context.Context, w *world, program string, flags ...string) (*running, error) {
	r, err := o.start(ctx, w, program, append(flags, "--leader-elect=true")...)
	return r, errors.Join(err, sleep(ctx, between))
}

// succeed ends the leader and returns the next one.
func (o *Options) succeed(ctx context.Context, w *world, leader *running, told bool) (*running, error) {
	scenario, signal := "the leader killed", syscall.SIGKILL
	if told {
		scenario, signal = "the leader told to stop", syscall.SIGTERM
	}
	o.statusf("failover, %s, %s", leader.name, scenario)
	standby, err := o.replica(ctx, w, leader.name)
	if err != nil {
		return nil, err
	}
	before, err := w.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, leader.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := syscall.Kill(leader.PID(), signal); err != nil {
		return nil, err
	}
	at, err := w.filledBy(ctx, standby, before)
	if err != nil {
		return nil, err
	}
	o.add(scenario, "time until the next token Secret is filled, s", leader.name, at.Sub(begun).Seconds())
	<-leader.Done()
	return standby, nil
}

// filledBy returns when a Secret is filled by the standby, which holds the Lease then. What the old leader fills in its
// last moments does not count.
func (w *world) filledBy(ctx context.Context, standby *running, before *coordinationv1.Lease) (time.Time, error) {
	for {
		begun := time.Now()
		name := fmt.Sprintf("next-%d", begun.UnixNano())
		took, err := w.complete(ctx, standby, []string{filled(standby.name, name)}, 1, func(ctx context.Context, _ int) error {
			return w.makeTokenSecret(ctx, standby.name, name, "default")
		})
		if err != nil {
			return time.Time{}, err
		}
		now, err := w.client.CoordinationV1().Leases(before.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
		if err != nil {
			return time.Time{}, err
		}
		at, holder := begun.Add(took), *now.Spec.HolderIdentity
		if holder != "" && holder != *before.Spec.HolderIdentity && now.Spec.AcquireTime.Time.Before(at) {
			return at, nil
		}
	}
}
