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
	"sa-controller-manager/test/measure"
)

// Restart has a program start in a cluster that has been in use. All programs are
// started in the same world, in turn, first without and then with foreign Secrets. Mode
// auto is left out, because it would leave the others a fuller world than it has found.
func (o *Options) Restart(ctx context.Context) error {
	return o.onFresh(ctx, devcluster.Options{}, func(w *world.World) error {
		r := &restarts{Options: o, w: w}
		if err := r.populate(ctx); err != nil {
			return err
		}
		if err := r.turns(ctx, "no foreign Secrets"); err != nil {
			return err
		}
		if err := r.addForeign(ctx); err != nil {
			return err
		}
		r.settles = true
		return r.turns(ctx, fmt.Sprintf("%d foreign Secrets", o.Foreign))
	})
}

type restarts struct {
	*Options

	w       *world.World
	count   int  // of those so far, for names that are new
	settles bool // until then only times are measured: scenario idle has the memory without foreign Secrets
}

// populate has a program fill the world with namespaces and token Secrets, and stops it.
func (r *restarts) populate(ctx context.Context) error {
	r.Progress.Statusf("restart, populating")
	program, err := r.w.Start(world.Ours(r.Binary, world.Manual))
	if err != nil {
		return err
	}
	if err := program.AwaitReady(ctx); err != nil {
		return err
	}
	c := &crowd{Options: r.Options, w: r.w}
	for _, s := range []stage{c.namespaces(), c.secrets()} {
		if err := s.prepared(ctx); err != nil {
			return err
		}
		if _, err := r.watched(ctx, c, s, program, func(ctx context.Context) (time.Time, error) { return time.Now(), s.load(ctx) }); err != nil {
			return err
		}
	}
	_, err = program.Stop()
	return err
}

func (r *restarts) addForeign(ctx context.Context) error {
	r.Progress.Statusf("restart, making foreign Secrets")
	content := bytes.Repeat([]byte("0123456789abcdef"), foreignSize/16)
	return r.w.Each(ctx, r.Foreign, func(ctx context.Context, i int) error {
		return r.w.MakeForeignSecret(ctx, world.Namespace(i%r.Namespaces), fmt.Sprintf("foreign-%05d", i), content)
	})
}

func (r *restarts) turns(ctx context.Context, variant string) error {
	for repetition := range r.Repetitions {
		for _, p := range []world.Program{world.Peer(), world.Ours(r.Binary, world.Manual)} {
			r.Progress.Statusf("restart, %s, %s, %d of %d", variant, p.Name, repetition+1, r.Repetitions)
			if err := r.restart(ctx, variant, p); err != nil {
				return fmt.Errorf("repetition %d, %s, %s: %w", repetition+1, variant, p.Name, err)
			}
		}
	}
	return nil
}

// owed is a namespace and a Secret that nobody has looked after yet.
type owed struct {
	namespace, secret  string
	namespaces, filled *world.Goal
}

// owe watches for both to be completed, before they are made.
func (r *restarts) owe(ctx context.Context) (*owed, error) {
	r.count++
	o := &owed{namespace: fmt.Sprintf("late-%05d", r.count), secret: fmt.Sprintf("late-%05d", r.count)}
	o.namespaces = world.NewGoal([]string{world.Account(o.namespace, "default"), world.RootCA(o.namespace)})
	o.filled = world.NewGoal([]string{world.Filled(world.Namespace(0), o.secret)})
	return o, errors.Join(
		r.w.Follow(ctx, o.namespaces, world.Notice(o.namespaces), "serviceaccounts", "configmaps"),
		r.w.Follow(ctx, o.filled, world.Notice(o.filled), "secrets"),
	)
}

func (r *restarts) make(ctx context.Context, o *owed) error {
	return errors.Join(
		r.w.MakeTokenSecret(ctx, world.Namespace(0), o.secret, "default", nil),
		r.w.MakeNamespace(ctx, o.namespace),
	)
}

// restart measures from the start of the process.
func (r *restarts) restart(ctx context.Context, variant string, p world.Program) error {
	bounded, cancel := context.WithTimeoutCause(ctx, r.Stage, errors.New("the time for one restart is over"))
	defer cancel()
	waiting, err := r.owe(bounded)
	if err != nil {
		return err
	}
	fresh, err := r.owe(bounded)
	if err != nil {
		return err
	}
	if err := r.make(ctx, waiting); err != nil {
		return err
	}
	if err := world.Sleep(ctx, between); err != nil { // kube-apiserver's caches come to rest
		return err
	}
	running, err := r.w.Start(p)
	if err != nil {
		return err
	}
	if err := running.AwaitReady(bounded); err != nil {
		return err
	}
	if err := r.make(ctx, fresh); err != nil {
		return err
	}
	for _, goal := range []*world.Goal{waiting.namespaces, waiting.filled, fresh.namespaces, fresh.filled} {
		goal.Needs(running)
	}
	times := map[string]time.Time{}
	for _, wait := range []struct {
		name string
		goal *world.Goal
	}{
		{"waiting namespace", waiting.namespaces},
		{"waiting Secret", waiting.filled},
		{"new namespace", fresh.namespaces},
		{"new Secret", fresh.filled},
	} {
		if times[wait.name], err = wait.goal.Wait(bounded); err != nil {
			return err
		}
	}
	add := func(metric, unit string, value float64) {
		r.add(result.Key{Scenario: "restart", Variant: variant, Metric: metric, Unit: unit, Program: p.Name}, value)
	}
	add("start to ready", "s", running.Ready.Sub(running.Started).Seconds())
	add("start to a waiting namespace complete", "s", times["waiting namespace"].Sub(running.Started).Seconds())
	add("start to a waiting Secret filled", "s", times["waiting Secret"].Sub(running.Started).Seconds())
	add("ready to a new namespace complete", "s", times["new namespace"].Sub(running.Ready).Seconds())
	add("ready to a new Secret filled", "s", times["new Secret"].Sub(running.Ready).Seconds())
	if r.settles {
		if err := r.settle(ctx, running, add); err != nil {
			return err
		}
	}
	_, err = running.Stop()
	return err
}

// settle reads what the process costs once it has come to rest.
func (r *restarts) settle(ctx context.Context, running *world.Running, add func(metric, unit string, value float64)) error {
	if err := world.Sleep(ctx, r.Settling); err != nil {
		return err
	}
	memory, err := measure.MemoryOf(running.PID())
	if err != nil {
		return err
	}
	used, err := running.CPU()
	if err != nil {
		return err
	}
	add("steady memory, RssAnon", "MiB", float64(memory.Anon)/1024)
	add("peak memory, RSS", "MiB", float64(memory.Peak)/1024)
	add(fmt.Sprintf("CPU of the first %v", r.Settling), "s", used)
	return nil
}
