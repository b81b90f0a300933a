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

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

// failover ends the leading one of two replicas: how long it takes until the next token Secret is
// filled. How many Pods are refused meanwhile, TestServiceDrain counts.
func (o *Options) failover(ctx context.Context) error {
	return o.onFresh(ctx, devcluster.Options{}, func(ctx context.Context, w *world.World) error {
		for _, program := range []string{world.KCM, world.Manual} {
			if err := o.failovers(ctx, w, program); err != nil {
				return fmt.Errorf("%s: %w", program, err)
			}
		}
		return nil
	})
}

// failovers has the standby of one repetition lead in the next.
func (o *Options) failovers(ctx context.Context, w *world.World, program string) error {
	lease := "sa-controller-manager"
	if program == world.KCM {
		lease = world.KCM
	}
	leader, err := o.replica(ctx, w, program)
	if err != nil {
		return err
	}
	namespace := "failover-" + lease
	goal := w.Goal(world.Account(namespace, "default"), world.RootCA(namespace))
	if err := w.MakeNamespace(ctx, namespace); err != nil {
		return err
	}
	if _, err := goal.Wait(ctx, leader); err != nil {
		return err
	}
	leases := w.Client.CoordinationV1().Leases(metav1.NamespaceSystem)
	for _, end := range []struct {
		name   string
		signal syscall.Signal
	}{{"told to stop", syscall.SIGTERM}, {"killed", syscall.SIGKILL}} {
		for repetition := range o.Repetitions {
			o.statusf("failover, %s, %s, %d of %d", program, end.name, repetition+1, o.Repetitions)
			standby, err := o.replica(ctx, w, program)
			if err != nil {
				return err
			}
			before, err := leases.Get(ctx, lease, metav1.GetOptions{})
			if err != nil {
				return err
			}
			begun := time.Now()
			if err := syscall.Kill(leader.PID(), end.signal); err != nil {
				return err
			}
			filled, err := o.filledBy(ctx, w, standby, before, namespace, fmt.Sprintf("next-%d-%d", end.signal, repetition))
			if err != nil {
				return err
			}
			o.add(result.Key{Scenario: "failover", Variant: "the leader " + end.name, Metric: "time until the next token Secret is filled",
				Unit: "s", Program: program}, filled.Sub(begun).Seconds())
			<-leader.Done()
			leader = standby
		}
	}
	_, err = leader.Stop()
	return err
}

// replica starts one that takes part in the election, and waits until it is ready to take over.
func (o *Options) replica(ctx context.Context, w *world.World, program string, flags ...string) (*world.Running, error) {
	r, err := w.StartReady(ctx, o.Binary, program, append(flags, "--leader-elect=true")...)
	return r, errors.Join(err, world.Sleep(ctx, between))
}

// filledBy returns when a Secret is filled by the standby, which holds the Lease then. What the old leader fills in its
// last moments does not count.
func (o *Options) filledBy(ctx context.Context, w *world.World, standby *world.Running, before *coordinationv1.Lease,
	namespace, name string) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Stage, errors.New("nobody takes over"))
	defer cancel()
	for i := 0; ; i++ {
		secret := fmt.Sprintf("%s-%d", name, i)
		goal := w.Goal(world.Filled(namespace, secret))
		if err := w.MakeTokenSecret(ctx, namespace, secret, "default"); err != nil {
			return time.Time{}, err
		}
		filled, err := goal.Wait(ctx, standby)
		if err != nil {
			return time.Time{}, err
		}
		now, err := w.Client.CoordinationV1().Leases(before.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
		if err != nil {
			return time.Time{}, err
		}
		holder := *now.Spec.HolderIdentity
		if holder != "" && holder != *before.Spec.HolderIdentity && now.Spec.AcquireTime.Time.Before(filled) {
			return filled, nil
		}
	}
}
