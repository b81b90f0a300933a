// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scale measures sa-controller-manager in clusters of growing size: whether what
// one object costs depends on how many there are.
package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

// Options say how much is measured.
type Options struct {
	Binary devcluster.Binary
	// Sizes are numbers of token Secrets. There are as many accounts, and a tenth as many
	// namespaces.
	Sizes []int
	// Reissued is how many tokens of a rotation are awaited: their number a second is
	// limited by the product.
	Reissued int
	// Keys is how many Secrets are made one after the other.
	Keys int
	// Stage bounds one wait.
	Stage time.Duration

	Report   *result.Report
	Progress *world.Progress
}

// Measure measures every size on a control plane of its own, and calls done after each.
func (o *Options) Measure(ctx context.Context, done func() error) error {
	for _, size := range o.Sizes {
		if err := o.one(ctx, size); err != nil {
			return fmt.Errorf("%d token Secrets: %w", size, err)
		}
		if err := done(); err != nil {
			return err
		}
	}
	o.slope()
	return done()
}

// slope compares the smallest size with the largest.
func (o *Options) slope() {
	first, last := o.Sizes[0], o.Sizes[len(o.Sizes)-1]
	for _, metric := range []string{fill, complete} {
		small, ok1 := o.Report.Find(result.Key{Scenario: "scale", Metric: metric, Unit: "s", Program: column(first)})
		large, ok2 := o.Report.Find(result.Key{Scenario: "scale", Metric: metric, Unit: "s", Program: column(last)})
		if ok1 && ok2 && first < last {
			o.add(result.Key{Scenario: "scale-slope", Metric: metric, Program: fmt.Sprintf("from %d to %d", first, last)},
				result.Slope(small, float64(first), large, float64(last)))
		}
	}
}

func column(size int) string { return fmt.Sprintf("%d token Secrets", size) }

func (o *Options) add(key result.Key, value float64) {
	o.Report.Add(key, value)
	o.Progress.Linef("%-24s %-52s %10.5g %s", key.Program, key.Metric, value, key.Unit)
}

// one measures one size.
func (o *Options) one(ctx context.Context, size int) (err error) {
	dir, err := os.MkdirTemp("", "sacm-scale-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &scene{Options: o, size: size, dir: dir}
	if err := devcluster.WriteSigningKey(s.nextKey(), devcluster.ECDSA); err != nil {
		return err
	}
	s.w, err = world.New(ctx, devcluster.Options{
		SigningKey:    devcluster.ECDSA,
		ExtraKeyFiles: []string{s.nextKey()},
		// Every revision of the last minutes is kept, and a full database is the end.
		EtcdFlags: []string{"--quota-backend-bytes=8589934592"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.w.Stop()) }()
	if err := s.prepare(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"namespaces", s.namespaces},
		{"accounts", s.accounts},
		{"token Secrets", s.secrets},
		{"one key at a time", s.keys},
		{"a restart", s.restart},
		{"a rotation", s.rotate},
		{"another root CA", s.rootCA}, // the last: it does not await the end of the rollout
	} {
		o.Progress.Statusf("%d, %s", size, step.name)
		if err := bounded(ctx, o.Stage, step.do); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func bounded(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("the time for one step is over"))
	defer cancel()
	return do(ctx)
}

func (s *scene) nextKey() string { return filepath.Join(s.dir, "next.key") }
