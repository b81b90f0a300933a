// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/balancer"
	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

// ends are the ways in which a leader ends.
var ends = []struct {
	name   string
	signal syscall.Signal
}{{"told to stop", syscall.SIGTERM}, {"killed", syscall.SIGKILL}}

const podsASecond = 20

// Failover ends the leading one of two replicas: how long it takes until the next token Secret is
// filled, and how many Pods are refused by a webhook that both serve.
func (o *Options) Failover(ctx context.Context) error {
	err := o.onFresh(ctx, devcluster.Options{}, func(w *world.World) error {
		for _, p := range []world.Program{world.Peer(), world.Ours(o.Binary, world.Manual)} {
			if err := o.failovers(ctx, w, p); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	without := map[string][]string{"disable-admission-plugins": {"ServiceAccount"}}
	return o.onFresh(ctx, devcluster.Options{APIServerFlags: without}, func(w *world.World) error {
		for _, t := range topologies {
			for _, end := range ends {
				for repetition := range o.Repetitions {
					variant := fmt.Sprintf(t.name, end.name)
					o.Progress.Statusf("failover, %s, %d of %d", variant, repetition+1, o.Repetitions)
					refused, err := o.refused(ctx, w, t, end.signal, fmt.Sprintf("refused-%s-%d-%d", t.urlHost[len(t.urlHost)-1:], end.signal, repetition))
					if err != nil {
						return fmt.Errorf("%s: %w", variant, err)
					}
					o.add(result.Key{Scenario: "failover", Variant: variant, Metric: fmt.Sprintf("refused Pods, of %d a second", podsASecond),
						Program: world.Manual}, refused)
				}
			}
		}
		return nil
	})
}

// failovers has the standby of one repetition lead in the next.
func (o *Options) failovers(ctx context.Context, w *world.World, p world.Program) error {
	lease := "sa-controller-manager"
	if p.Name == world.KCM {
		lease = world.KCM
	}
	leader, err := o.replica(ctx, w, p)
	if err != nil {
		return err
	}
	if err := o.complete(ctx, w, leader, "failover-"+lease); err != nil {
		return err
	}
	for _, end := range ends {
		for repetition := range o.Repetitions {
			o.Progress.Statusf("failover, %s, %s, %d of %d", p.Name, end.name, repetition+1, o.Repetitions)
			standby, err := o.replica(ctx, w, p)
			if err != nil {
				return err
			}
			secret := fmt.Sprintf("next-%d-%d", end.signal, repetition)
			took, err := o.failover(ctx, w, standby, lease, secret, func() error { return syscall.Kill(leader.PID(), end.signal) })
			if err != nil {
				return err
			}
			o.add(result.Key{Scenario: "failover", Variant: "the leader " + end.name, Metric: "time until the next token Secret is filled",
				Unit: "s", Program: p.Name}, took.Seconds())
			<-leader.Done()
			leader = standby
		}
	}
	_, err = leader.Stop()
	return err
}

// replica starts one that takes part in the election, and waits until it is ready to take over.
func (o *Options) replica(ctx context.Context, w *world.World, p world.Program, flags ...string) (*world.Running, error) {
	r, err := w.Start(p, append(flags, "--leader-elect=true")...)
	if err != nil {
		return nil, err
	}
	if err := r.AwaitReady(ctx); err != nil {
		return nil, err
	}
	return r, world.Sleep(ctx, between)
}

// complete makes a namespace and waits until a controller has completed it.
func (o *Options) complete(ctx context.Context, w *world.World, r *world.Running, namespace string) error {
	goal := world.NewGoal([]string{world.Account(namespace, "default"), world.RootCA(namespace)})
	goal.Needs(r)
	if err := w.Follow(ctx, goal, world.Notice(goal), "serviceaccounts", "configmaps"); err != nil {
		return err
	}
	if err := w.MakeNamespace(ctx, namespace); err != nil {
		return err
	}
	_, err := goal.Wait(ctx)
	return err
}

// failover returns the time from end until a Secret that was created after it is filled, by the
// process that holds the Lease since. What the old leader fills in its last moments does not count.
func (o *Options) failover(ctx context.Context, w *world.World, standby *world.Running, lease, name string,
	end func() error) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Stage, errors.New("nobody takes over"))
	defer cancel()
	leases, namespace := w.Client.CoordinationV1().Leases(metav1.NamespaceSystem), "failover-"+lease
	before, err := leases.Get(ctx, lease, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	var begun time.Time
	for i := 0; ; i++ {
		secret := fmt.Sprintf("%s-%d", name, i)
		goal := world.NewGoal([]string{world.Filled(namespace, secret)})
		goal.Needs(standby)
		if err := w.Follow(ctx, goal, world.Notice(goal), "secrets"); err != nil {
			return 0, err
		}
		if i == 0 {
			begun = time.Now()
			if err := end(); err != nil {
				return 0, err
			}
		}
		if err := w.MakeTokenSecret(ctx, namespace, secret, "default", nil); err != nil {
			return 0, err
		}
		filled, err := goal.Wait(ctx)
		if err != nil {
			return 0, err
		}
		now, err := leases.Get(ctx, lease, metav1.GetOptions{})
		if err != nil {
			return 0, err
		}
		if holder := *now.Spec.HolderIdentity; holder != "" && holder != *before.Spec.HolderIdentity && now.Spec.AcquireTime.Time.Before(filled) {
			return filled.Sub(begun), nil
		}
	}
}

// topology is a way in which kube-apiserver reaches the webhook.
type topology struct {
	name    string // %s is how a replica ends
	urlHost string
	hosts   []string // of the replicas
	again   bool     // what ends is started again at once
}

// topologies are those of the manifests. Behind a Service, every new connection goes to the leader
// until it is known, half a second late, that it is not ready. Its URL is "localhost" for replicas that listen at
// other loopback addresses.
var topologies = []topology{
	{"two replicas behind a Service, the leader %s", "localhost", []string{"127.0.0.3", "127.0.0.4"}, false},
	{"one replica behind a loopback URL, %s and started again", "127.0.0.1", []string{"127.0.0.1"}, true},
}

// refused creates twenty Pods a second while a replica ends, and returns how many are refused.
func (o *Options) refused(ctx context.Context, w *world.World, t topology, signal syscall.Signal,
	namespace string) (refused float64, err error) {
	port, err := devcluster.FreePort()
	if err != nil {
		return 0, err
	}
	start := func(host string) (*world.Running, error) {
		return o.replica(ctx, w, world.Ours(o.Binary, world.Manual), "--webhook-registration=url", "--webhook-url-host="+t.urlHost,
			"--webhook-port="+strconv.Itoa(port), "--webhook-bind-address="+host)
	}
	if !t.again {
		var addresses []string
		for _, host := range t.hosts {
			addresses = append(addresses, net.JoinHostPort(host, strconv.Itoa(port)))
		}
		b, err := balancer.Start(net.JoinHostPort(t.urlHost, strconv.Itoa(port)), addresses)
		if err != nil {
			return 0, err
		}
		defer b.Close()
	}
	var replicas []*world.Running
	for _, host := range t.hosts {
		r, err := start(host)
		if err != nil {
			return 0, err
		}
		defer func() { _, stopped := r.Stop(); err = errors.Join(err, stopped) }()
		replicas = append(replicas, r)
	}
	if err := o.complete(ctx, w, replicas[0], namespace); err != nil {
		return 0, err
	}
	if err := (&pods{Options: o}).awaitEffect(ctx, subject{namespace, namespace, w, true}); err != nil {
		return 0, err
	}
	stop := load(ctx, w, namespace)
	defer stop()
	if err := errors.Join(world.Sleep(ctx, between), syscall.Kill(replicas[0].PID(), signal)); err != nil {
		return 0, err
	}
	<-replicas[0].Done()
	if t.again {
		r, err := start(t.hosts[0])
		if err != nil {
			return 0, err
		}
		defer func() { _, stopped := r.Stop(); err = errors.Join(err, stopped) }()
	}
	err = world.Sleep(ctx, between)
	return stop(), err
}

// load creates Pods until it is stopped, which returns how many were refused.
func load(ctx context.Context, w *world.World, namespace string) (stop func() float64) {
	ctx, cancel := context.WithCancel(ctx)
	var failed atomic.Int64
	var creating sync.WaitGroup
	creating.Go(func() {
		await.Every(ctx, time.Second/podsASecond, func(ctx context.Context, i int) {
			if err := w.MakePod(ctx, namespace, fmt.Sprintf("pod-%d", i)); err != nil && ctx.Err() == nil {
				failed.Add(1)
			}
		})
	})
	return func() float64 {
		cancel()
		creating.Wait()
		return float64(failed.Load())
	}
}
