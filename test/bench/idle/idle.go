// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package idle measures what sa-controller-manager costs while nothing happens, beside a
// kube-controller-manager that runs the four controllers it replaces and no other, on the
// same real control plane.
package idle

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/measure"
)

// Options say how long to look, and at how much.
type Options struct {
	Binary  devcluster.Binary
	Objects int // namespaces, each with an account and a filled token Secret
	// Settling is how long both may take to finish what they do at a start: longer than
	// the Go runtime waits before it collects garbage unasked for, which is two minutes.
	Settling time.Duration
	Window   time.Duration
	Windows  int // that follow each other
	// Tell, unless nil, logs each step.
	Tell func(text string)
}

// Cost is that of one program in one window.
type Cost struct {
	Program  string
	CPU      float64 // seconds a minute
	RSSAnon  float64 // MiB at the end
	Requests float64 // a minute to kube-apiserver, without watches that go on
}

// Measure returns the costs of both programs in every window, ours first.
func Measure(ctx context.Context, o Options) (costs []Cost, err error) {
	cluster, err := devcluster.Start(ctx, devcluster.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	processes, err := start(ctx, cluster, o.Binary)
	if err != nil {
		return nil, err
	}
	o.tell("Making %d namespaces, each with an account and a token Secret.", o.Objects)
	if err := populate(ctx, cluster, o.Objects); err != nil {
		return nil, err
	}
	o.tell("Waiting %v for both to settle, then measuring for %v.", o.Settling, time.Duration(o.Windows)*o.Window)
	if err := world.Sleep(ctx, o.Settling); err != nil {
		return nil, err
	}
	before, err := observeAll(ctx, processes)
	if err != nil {
		return nil, err
	}
	for range o.Windows {
		if err := world.Sleep(ctx, o.Window); err != nil {
			return nil, err
		}
		after, err := observeAll(ctx, processes)
		if err != nil {
			return nil, err
		}
		for i, p := range processes {
			costs = append(costs, between(p.name, before[i], after[i]))
		}
		before = after
	}
	return costs, nil
}

func (o *Options) tell(format string, args ...any) {
	if o.Tell != nil {
		o.Tell(fmt.Sprintf(format, args...))
	}
}

// start has both work with the same key and root CA, so that they agree in all.
func start(ctx context.Context, cluster *devcluster.Cluster, binary devcluster.Binary) ([]process, error) {
	port, err := devcluster.FreePort()
	if err != nil {
		return nil, err
	}
	ours, err := binary.StartManager(cluster, "--token-secrets=manual", "--leader-elect=true",
		"--webhook-port="+strconv.Itoa(port), "--webhook-registration=url")
	if err != nil {
		return nil, err
	}
	kcm, err := cluster.StartKubeControllerManager("--leader-elect=true",
		"--authentication-kubeconfig="+cluster.Kubeconfig(), "--authorization-kubeconfig="+cluster.Kubeconfig(),
		"--client-ca-file="+cluster.ClientCAFile(), "--controllers="+world.PeerControllers)
	if err != nil {
		return nil, err
	}
	processes := []process{{world.Manual, ours}, {world.KCM, kcm}}
	for _, p := range processes {
		if err := p.Ready(ctx); err != nil {
			return nil, err
		}
	}
	return processes, nil
}

// process is one that is measured.
type process struct {
	name string
	*devcluster.Manager
}

// observation is what a process has cost by a moment.
type observation struct {
	at       time.Time
	cpu      time.Duration
	rssAnon  int // KiB
	requests float64
}

func observeAll(ctx context.Context, processes []process) ([]observation, error) {
	var all []observation
	for _, p := range processes {
		o, err := p.observe(ctx)
		if err != nil {
			return nil, fmt.Errorf("observe %s: %w", p.name, err)
		}
		all = append(all, o)
	}
	return all, nil
}

// observe looks into /proc after the metrics have been read, the first time, and so
// counts one scrape in each window.
func (p process) observe(ctx context.Context) (observation, error) {
	metrics, err := p.Metrics(ctx)
	if err != nil {
		return observation{}, err
	}
	cpu, err := measure.CPU(p.PID())
	if err != nil {
		return observation{}, err
	}
	memory, err := measure.MemoryOf(p.PID())
	return observation{time.Now(), cpu, memory.Anon, metrics.Sum("rest_client_requests_total", nil)}, err
}

func between(name string, before, after observation) Cost {
	minutes := after.at.Sub(before.at).Minutes()
	return Cost{
		Program: name, RSSAnon: float64(after.rssAnon) / 1024,
		CPU: (after.cpu - before.cpu).Seconds() / minutes, Requests: (after.requests - before.requests) / minutes,
	}
}
