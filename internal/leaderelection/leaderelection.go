// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leaderelection runs the work of a leader in one replica at a time. It adds a fence to
// client-go's elector: if the Lease was not renewed for the renew deadline, the work is stopped at
// once and starts no further write, even while the elector waits.
//
// A process that has lost its lease cannot know the fate of its requests, so
// kube-controller-manager ends. This one stays, serves admission and waits to lead again: a
// kube-apiserver on a kubeadm node takes longer to restart than a lease lives, and a webhook that
// ended with it would have no serving certificate when Pods are created again. So controllers must
// be able to run more than once and use nothing that they learned in an earlier term. Every write
// has a precondition besides, so a late one of a previous leader changes nothing. The Lease is not
// kube-controller-manager's, or the two programs would exclude each other. It is released after the
// controllers have finished.
package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/reconcile"
)

// watchdogTimeout is how long the lease may be overdue before the watchdog fails, as in
// KCM (cmd/kube-controller-manager/app/controllermanager.go).
const watchdogTimeout = 20 * time.Second

// Config is what an election needs.
type Config struct {
	componentbaseconfig.LeaderElectionConfiguration

	// Name is the name of the election in metrics.
	Name string
	// Client reads and writes only the Lease: renewals must not wait for other requests.
	Client kubernetes.Interface
	// Watchdog is the result of NewWatchdog.
	Watchdog *leaderelection.HealthzAdaptor
}

// NewWatchdog returns the health check that fails if a leader works on without renewing its Lease.
func NewWatchdog() *leaderelection.HealthzAdaptor {
	return leaderelection.NewLeaderHealthzAdaptor(watchdogTimeout)
}

var errLeaseLost = errors.New("the Lease is lost, another process may lead now")

// Run calls work whenever this process becomes the leader. It returns when ctx has ended or work has
// failed, and work has returned.
//
// If the Lease was not renewed for the renew deadline, it is lost: the context of work ends with
// reconcile.ErrAtOnce, and Run waits for the Lease again. kube-controller-manager ends the process
// instead; this one still serves admission.
func Run(ctx context.Context, config Config, work func(context.Context) error) error {
	lock, err := newLock(ctx, &config)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		err := leadOnce(ctx, &config, lock, work)
		if !errors.Is(err, errLeaseLost) {
			return err
		}
		klog.FromContext(ctx).Error(err, "Stopped controllers, waiting to become the leader again")
	}
	return nil
}

// leadOnce waits for the Lease, leads, and returns when work has returned. If ctx ends, it releases the
// Lease only after work, so that no two processes work at a time.
func leadOnce(ctx context.Context, config *Config, inner resourcelock.Interface, work func(context.Context) error) error {
	election, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()

	// The first of leading and the end of ctx decides: if ctx ends while the Lease is acquired, work does not
	// start, and the elector releases the Lease.
	const waiting, leading, ended = 0, 1, 2
	var state atomic.Int32
	var lost atomic.Bool
	lock := &fencedLock{Interface: inner, deadline: config.RenewDeadline.Duration}
	worked := make(chan error, 1)
	var elector *leaderelection.LeaderElector
	var err error
	elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: config.Name, Lock: lock, WatchDog: config.Watchdog, ReleaseOnCancel: true,
		LeaseDuration: config.LeaseDuration.Duration, RenewDeadline: config.RenewDeadline.Duration,
		RetryPeriod: config.RetryPeriod.Duration,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(lease context.Context) {
				if !state.CompareAndSwap(waiting, leading) {
					return
				}
				working, stop := context.WithCancelCause(context.WithoutCancel(lease))
				defer stop(nil)
				config.Watchdog.SetLeaderElection(elector)
				defer config.Watchdog.SetLeaderElection(nil) // a replica that waits has nothing to renew
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
	state.CompareAndSwap(waiting, ended)
	if state.Load() == ended {
		return neverLed(ctx)
	}
	if err := <-worked; err != nil || !lost.Load() {
		return err
	}
	return errLeaseLost
}

// neverLed returns the result of an election without work: nil if the process ends. The elector may also have lost the Lease
// before OnStartedLeading ran, because the process was suspended in between: that must not end it.
func neverLed(ctx context.Context) error {
	if ctx.Err() == nil {
		return errLeaseLost
	}
	return nil
}

func newLock(ctx context.Context, config *Config) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	// A host may run several replicas, so its name alone is no identity.
	identity := host + "_" + string(uuid.NewUUID())
	lock, err := resourcelock.New(config.ResourceLock, config.ResourceNamespace, config.ResourceName,
		config.Client.CoreV1(), config.Client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Waiting to become the leader",
		"identity", identity, "lease", klog.KRef(config.ResourceNamespace, config.ResourceName))
	return lock, nil
}
