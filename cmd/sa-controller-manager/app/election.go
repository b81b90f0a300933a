// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/reconcile"
)

var errLeaseLost = errors.New("the lease is lost, another process may lead now")

// process is the object that Events about this process regard: the Lease that its
// replicas share or, without one, the namespace that everything of ours is in.
func process(o *options.LeaderElection) *corev1.ObjectReference {
	if !o.LeaderElect {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: metav1.NamespaceSystem}
	}
	return &corev1.ObjectReference{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: o.ResourceNamespace, Name: o.ResourceName,
	}
}

// lead has work run whenever this process is the leader. It returns once ctx has ended
// or work has failed, and work has returned.
//
// Without an end of ctx, the lease can be lost: it could not be renewed for the renew
// deadline. Then work is told to stop at once (reconcile.ErrAtOnce), and the wait for the lease
// begins anew. kube-controller-manager ends the process instead. This one has admission to
// serve, and what it has under way is stopped by its context.
func lead(ctx context.Context, o *options.LeaderElection, client kubernetes.Interface, watchdog *leaderelection.HealthzAdaptor, work func(context.Context) error) error {
	lock, err := newLock(ctx, o, client)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		err := leadOnce(ctx, o, &fencedLock{Interface: lock, deadline: o.RenewDeadline.Duration}, watchdog, work)
		if !errors.Is(err, errLeaseLost) {
			return err
		}
		klog.FromContext(ctx).Error(err, "Controllers have stopped, waiting to lead again")
	}
	return nil
}

// leadOnce waits for the lease, leads, and returns when work has returned. If ctx ends, the
// lease is given away only after that, so that no two processes work at a time.
func leadOnce(ctx context.Context, o *options.LeaderElection, lock *fencedLock, watchdog *leaderelection.HealthzAdaptor, work func(context.Context) error) error {
	election, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()

	// What comes first, to lead or to be told to end, decides: work that is to begin
	// while the lease is acquired does not.
	const waiting, leading, ended = 0, 1, 2
	var state atomic.Int32
	var lost atomic.Bool
	worked := make(chan error, 1)
	var elector *leaderelection.LeaderElector
	var err error
	elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: options.ProgramName, Lock: lock, WatchDog: watchdog, ReleaseOnCancel: true,
		LeaseDuration: o.LeaseDuration.Duration, RenewDeadline: o.RenewDeadline.Duration, RetryPeriod: o.RetryPeriod.Duration,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(lease context.Context) {
				if !state.CompareAndSwap(waiting, leading) {
					return
				}
				working, stop := context.WithCancelCause(context.WithoutCancel(lease))
				defer stop(nil)
				watchdog.SetLeaderElection(elector)
				defer watchdog.SetLeaderElection(nil) // who waits cannot be late
				defer context.AfterFunc(ctx, func() { stop(nil) })()
				defer lock.fence(func() { lost.Store(true); stop(reconcile.ErrAtOnce) })()
				worked <- work(fenced(working, lock.overdue))
				giveUp()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	// A process that waits for the lease has nothing to finish first.
	defer context.AfterFunc(ctx, func() {
		if state.CompareAndSwap(waiting, ended) {
			giveUp()
		}
	})()
	elector.Run(election)
	if state.CompareAndSwap(waiting, ended) || state.Load() == ended {
		return nil // stopped before it led
	}
	if err := <-worked; err != nil || !lost.Load() {
		return err
	}
	return errLeaseLost
}

func newLock(ctx context.Context, o *options.LeaderElection, client kubernetes.Interface) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	// The same host may run several of us, so its name alone is no identity.
	identity := host + "_" + string(uuid.NewUUID())
	lock, err := resourcelock.New(o.ResourceLock, o.ResourceNamespace, o.ResourceName,
		client.CoreV1(), client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Waiting to become the leader", "identity", identity, "lease", klog.KRef(o.ResourceNamespace, o.ResourceName))
	return lock, nil
}
