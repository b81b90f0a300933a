// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"strconv"
	"time"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/measure"
)

// Idle measures what both programs cost while nothing happens, side by side: with leader election,
// and ours with its webhook. Its repetitions are windows that follow each other.
func (o *Options) Idle(ctx context.Context) error {
	return o.onFresh(ctx, devcluster.Options{}, func(w *world.World) error {
		both, err := o.startBoth(ctx, w)
		if err != nil {
			return err
		}
		if err := o.populateIdle(ctx, w, both[0]); err != nil {
			return err
		}
		o.Progress.Statusf("idle, waiting %v for both to settle", o.Settling)
		if err := world.Sleep(ctx, o.Settling); err != nil {
			return err
		}
		before, err := observe(ctx, both)
		if err != nil {
			return err
		}
		for range o.Repetitions {
			if err := world.Sleep(ctx, o.Window); err != nil {
				return err
			}
			after, err := observe(ctx, both)
			if err != nil {
				return err
			}
			for i, r := range both {
				o.addIdle(r.Name, before[i], after[i])
			}
			before = after
		}
		return nil
	})
}

func (o *Options) startBoth(ctx context.Context, w *world.World) ([]*world.Running, error) {
	port, err := devcluster.FreePort()
	if err != nil {
		return nil, err
	}
	ours, err := w.Start(world.Ours(o.Binary, world.Manual), "--leader-elect=true", "--webhook-port="+strconv.Itoa(port),
		"--webhook-registration=url")
	if err != nil {
		return nil, err
	}
	kcm, err := w.Start(world.Peer(), "--leader-elect=true")
	if err != nil {
		return nil, err
	}
	both := []*world.Running{ours, kcm}
	for _, r := range both {
		if err := r.AwaitReady(ctx); err != nil {
			return nil, err
		}
	}
	return both, nil
}

// populateIdle makes namespaces, each with a token Secret that is filled.
func (o *Options) populateIdle(ctx context.Context, w *world.World, needed *world.Running) error {
	c := &crowd{Options: o, w: w}
	filled := c.namespaces()
	filled.follows = []string{"secrets"}
	filled.wanted = func(context.Context) ([]string, error) {
		var names []string
		for i := range o.Namespaces {
			names = append(names, world.Filled(world.Namespace(i), "idle"))
		}
		return names, nil
	}
	filled.load = func(ctx context.Context) error {
		return w.Each(ctx, o.Namespaces, func(ctx context.Context, i int) error {
			return w.MakeTokenSecret(ctx, world.Namespace(i), "idle", "default", nil)
		})
	}
	for _, s := range []stage{c.namespaces(), filled} {
		if _, err := o.watched(ctx, c, s, needed, func(ctx context.Context) (time.Time, error) { return time.Now(), s.load(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// cost is what a program has cost by a moment.
type cost struct {
	at       time.Time
	cpu      float64 // seconds
	rssAnon  float64 // MiB
	requests float64
}

// observe looks into /proc after the metrics have been read, the first time, and so counts one
// scrape in each window.
func observe(ctx context.Context, programs []*world.Running) ([]cost, error) {
	var all []cost
	for _, r := range programs {
		sent, err := r.Sent(ctx)
		if err != nil {
			return nil, err
		}
		cpu, err := r.CPU()
		if err != nil {
			return nil, err
		}
		memory, err := measure.MemoryOf(r.PID())
		if err != nil {
			return nil, err
		}
		all = append(all, cost{time.Now(), cpu, float64(memory.Anon) / 1024, sent})
	}
	return all, nil
}

func (o *Options) addIdle(program string, before, after cost) {
	minutes := after.at.Sub(before.at).Minutes()
	key := func(metric, unit string) result.Key {
		return result.Key{Scenario: "idle", Metric: metric, Unit: unit, Program: program}
	}
	o.add(key("CPU a minute", "s"), (after.cpu-before.cpu)/minutes)
	o.add(key("requests a minute", ""), (after.requests-before.requests)/minutes)
	o.add(key("memory, RssAnon", "MiB"), after.rssAnon)
}
