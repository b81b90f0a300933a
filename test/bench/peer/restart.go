// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

// foreignSize is that of each foreign Secret, in bytes.
const foreignSize = 10 << 10

// restart has a program start in a cluster that has been in use. All programs are
// started in the same world, in turn, first without and then with foreign Secrets. Mode
// auto is left out, because it would leave the others a fuller world than it has found.
func (o *Options) restart(ctx context.Context) error {
	return o.onFresh(ctx, devcluster.Options{}, func(ctx context.Context, w *world.World) error {
		if err := o.populate(ctx, w); err != nil {
			return err
		}
		if err := o.restarts(ctx, w, "no foreign Secrets", false); err != nil {
			return err
		}
		o.statusf("restart, making foreign Secrets")
		content := bytes.Repeat([]byte("0123456789abcdef"), foreignSize/16)
		if err := world.Each(ctx, o.Foreign, func(ctx context.Context, i int) error {
			return w.MakeForeignSecret(ctx, world.Namespace(i%o.Namespaces), fmt.Sprintf("foreign-%05d", i), content)
		}); err != nil {
			return err
		}
		return o.restarts(ctx, w, fmt.Sprintf("%d foreign Secrets", o.Foreign), true)
	})
}

// populate has a program fill the world with namespaces and token Secrets, and stops it.
func (o *Options) populate(ctx context.Context, w *world.World) (err error) {
	o.statusf("restart, populating")
	c := &crowd{Options: o, w: w}
	if c.program, err = w.StartReady(ctx, o.Binary, world.Manual); err != nil {
		return err
	}
	if _, err := c.completed(ctx, c.namespaces()); err != nil {
		return err
	}
	if err := c.makeAccounts(ctx); err != nil {
		return err
	}
	if _, err := c.completed(ctx, c.secrets()); err != nil {
		return err
	}
	_, err = c.program.Stop()
	return err
}

func (o *Options) restarts(ctx context.Context, w *world.World, variant string, settles bool) error {
	for repetition := range o.Repetitions {
		for _, program := range []string{world.KCM, world.Manual} {
			o.statusf("restart, %s, %s, %d of %d", variant, program, repetition+1, o.Repetitions)
			r, err := o.started(ctx, w, variant, program, fmt.Sprintf("late-%s-%d-%t", program[:4], repetition, settles))
			// Without foreign Secrets only times are measured: scenario idle has the memory.
			if err == nil && settles {
				err = o.settled(ctx, r, variant)
			}
			if err != nil {
				return fmt.Errorf("repetition %d, %s, %s: %w", repetition+1, variant, program, err)
			}
			if _, err := r.Stop(); err != nil {
				return err
			}
		}
	}
	return nil
}

// started measures from the start of the process, for which a namespace and a Secret wait; another of each is
// made when it is ready.
func (o *Options) started(ctx context.Context, w *world.World, variant, program, name string) (*world.Running, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Stage, errors.New("the time for one restart is over"))
	defer cancel()
	goals := map[string]*world.Goal{}
	load := func(kind string) error {
		late := name + "-" + kind
		goals[kind+" namespace complete"] = w.Goal(world.Account(late, "default"), world.RootCA(late))
		goals[kind+" Secret filled"] = w.Goal(world.Filled(world.Namespace(0), late))
		return errors.Join(w.MakeTokenSecret(ctx, world.Namespace(0), late, "default"), w.MakeNamespace(ctx, late))
	}
	// kube-apiserver's caches come to rest in between.
	if err := errors.Join(load("waiting"), world.Sleep(ctx, between)); err != nil {
		return nil, err
	}
	r, err := w.StartReady(ctx, o.Binary, program)
	if err != nil {
		return nil, err
	}
	if err := load("new"); err != nil {
		return nil, err
	}
	add := func(metric string, took time.Duration) {
		o.add(result.Key{Scenario: "restart", Variant: variant, Metric: metric, Unit: "s", Program: program}, took.Seconds())
	}
	add("start to ready", r.Ready.Sub(r.Started))
	for _, wait := range []struct {
		metric, goal string
		since        time.Time
	}{
		{"start to a ", "waiting namespace complete", r.Started},
		{"start to a ", "waiting Secret filled", r.Started},
		{"ready to a ", "new namespace complete", r.Ready},
		{"ready to a ", "new Secret filled", r.Ready},
	} {
		ended, err := goals[wait.goal].Wait(ctx, r)
		if err != nil {
			return nil, err
		}
		add(wait.metric+wait.goal, ended.Sub(wait.since))
	}
	return r, nil
}

// settled reads what the process costs once it has come to rest.
func (o *Options) settled(ctx context.Context, r *world.Running, variant string) error {
	if err := world.Sleep(ctx, o.Settling); err != nil {
		return err
	}
	cost, err := r.Cost(ctx)
	add := func(metric, unit string, value float64) {
		o.add(result.Key{Scenario: "restart", Variant: variant, Metric: metric, Unit: unit, Program: r.Name}, value)
	}
	add("steady memory, RssAnon", "MiB", cost.RSSAnon)
	add("peak memory, RSS", "MiB", cost.Peak)
	add(fmt.Sprintf("CPU of the first %v", o.Settling), "s", cost.CPU)
	return err
}

// idle measures what both programs cost while nothing happens, side by side: with leader election,
// and ours with its webhook, and another replica of ours, which waits. Its repetitions are windows that follow each other.
func (o *Options) idle(ctx context.Context) error {
	return o.onFresh(ctx, devcluster.Options{}, func(ctx context.Context, w *world.World) error {
		c := &crowd{Options: o, w: w}
		var all []*world.Running
		for _, program := range []string{world.Manual, waiting, world.KCM} {
			var flags []string
			if program == world.Manual {
				port, err := devcluster.FreePort()
				if err != nil {
					return err
				}
				flags = []string{fmt.Sprintf("--webhook-port=%d", port), "--webhook-registration=url"}
			}
			r, err := o.replica(ctx, w, program, flags...)
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		c.program = all[0]
		if _, err := c.completed(ctx, c.namespaces()); err != nil {
			return err
		}
		if err := world.Each(ctx, o.Namespaces, func(ctx context.Context, i int) error {
			return w.MakeTokenSecret(ctx, world.Namespace(i), "idle", "default")
		}); err != nil {
			return err
		}
		o.statusf("idle, waiting %v for all to settle", o.Settling)
		if err := world.Sleep(ctx, o.Settling); err != nil {
			return err
		}
		return o.windows(ctx, all)
	})
}

// waiting is a replica that does not lead.
const waiting = "sa-controller-manager, a replica that waits"

func (o *Options) windows(ctx context.Context, all []*world.Running) error {
	before := map[string]world.Cost{}
	for window := range o.Repetitions + 1 {
		for _, r := range all {
			after, err := r.Cost(ctx)
			if err != nil {
				return err
			}
			if window > 0 {
				add := func(metric, unit string, value float64) {
					o.add(result.Key{Scenario: "idle", Metric: metric, Unit: unit, Program: r.Name}, value)
				}
				minutes := after.At.Sub(before[r.Name].At).Minutes()
				add("CPU a minute", "s", (after.CPU-before[r.Name].CPU)/minutes)
				add("requests a minute", "", (after.Requests-before[r.Name].Requests)/minutes)
				add("memory, RssAnon", "MiB", after.RSSAnon)
			}
			before[r.Name] = after
		}
		if window < o.Repetitions {
			if err := world.Sleep(ctx, o.Window); err != nil {
				return err
			}
		}
	}
	return nil
}
