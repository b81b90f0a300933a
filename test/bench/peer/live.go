// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"time"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

// Changes are namespaces, token Secrets and deleted accounts that while the program runs. The time is that from the
// first request of those who make them to the event that completes the last.
func (o *Options) Changes(ctx context.Context) error {
	return o.turns(ctx, func(ctx context.Context, v variant, p world.Program) error {
		return o.onFresh(ctx, devcluster.Options{SigningKey: v.key}, func(w *world.World) error {
			r, err := w.Start(p, v.flags...)
			if err != nil {
				return err
			}
			if err := r.AwaitReady(ctx); err != nil {
				return err
			}
			c := &crowd{Options: o, w: w, auto: p.Name == world.Auto}
			for _, s := range c.stages() {
				if err := o.live(ctx, c, v, r, s); err != nil {
					return err
				}
			}
			_, err = r.Stop()
			return err
		})
	}, o.floor)
}

func (o *Options) live(ctx context.Context, c *crowd, v variant, r *world.Running, s stage) error {
	o.Progress.Statusf("%s, %s, %s", s.name, v.name, r.Name)
	if err := s.prepared(ctx); err != nil {
		return err
	}
	sent, err := r.Sent(ctx)
	if err != nil {
		return err
	}
	before, err := r.CPU()
	if err != nil {
		return err
	}
	took, err := o.watched(ctx, c, s, r, func(ctx context.Context) (time.Time, error) {
		begun := time.Now()
		return begun, s.load(ctx)
	})
	if err != nil {
		return err
	}
	after, err := r.CPU()
	if err != nil {
		return err
	}
	if err := world.Sleep(ctx, time.Second); err != nil { // Events are sent later
		return err
	}
	all, err := r.Sent(ctx)
	if err != nil {
		return err
	}
	o.add(result.Key{Scenario: s.name, Variant: v.name, Metric: "time", Unit: "s", Program: r.Name}, took.Seconds())
	o.add(result.Key{Scenario: s.name, Variant: v.name, Metric: "CPU of the controller", Unit: "s", Program: r.Name}, after-before)
	o.add(result.Key{Scenario: s.name, Variant: v.name, Metric: "requests for each object", Program: r.Name}, (all-sent)/float64(s.size))
	return nil
}

// watched waits until all that the stage wants is so, verifies it, and returns the time
// since the moment that do says.
func (o *Options) watched(ctx context.Context, c *crowd, s stage, r *world.Running,
	do func(context.Context) (time.Time, error)) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Stage, errors.New("the time for one stage is over"))
	defer cancel()
	names, err := s.wanted(ctx)
	if err != nil {
		return 0, err
	}
	goal := world.NewGoal(names)
	if r != nil {
		goal.Needs(r)
	}
	if err := c.w.Follow(ctx, goal, world.Notice(goal), s.follows...); err != nil {
		return 0, err
	}
	begun, err := do(ctx)
	if err != nil {
		return 0, err
	}
	ended, err := goal.Wait(ctx)
	if err != nil {
		return 0, err
	}
	return ended.Sub(begun), s.verify(ctx)
}

// floor is the same with no controller: those who make the objects write
// what a controller would have to, too. The tokens are no tokens, so nothing is verified
// but the watch.
func (o *Options) floor(ctx context.Context) error {
	return o.onFresh(ctx, devcluster.Options{}, func(w *world.World) error {
		c := &crowd{Options: o, w: w}
		for _, s := range c.stages() {
			o.Progress.Statusf("%s, floor", s.name)
			if err := s.prepared(ctx); err != nil {
				return err
			}
			made, err := c.floorOf(ctx, s)
			if err != nil {
				return err
			}
			for _, v := range variants() {
				o.add(result.Key{Scenario: s.name, Variant: v.name, Metric: "time", Unit: "s", Program: world.Floor}, made.Seconds())
			}
		}
		return nil
	})
}

func (c *crowd) floorOf(ctx context.Context, s stage) (time.Duration, error) {
	load := s.load
	s.verify = func(context.Context) error { return nil }
	return c.watched(ctx, c, s, nil, func(ctx context.Context) (time.Time, error) {
		begun := time.Now()
		if err := load(ctx); err != nil {
			return begun, err
		}
		return begun, c.w.Each(ctx, s.size, s.complete)
	})
}
