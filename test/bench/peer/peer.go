// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peer measures sa-controller-manager beside kube-controller-manager, in turn and
// on equal control planes. docs/benchmarks.md describes its scenarios.
//
// A repetition whose end state is not the one that it has to be is an error, not a number.
package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

// Options say how much is measured.
type Options struct {
	Binary      devcluster.Binary
	Repetitions int

	Namespaces int
	Secrets    int // token Secrets, each of an account of its own
	Accounts   int // that are deleted
	Foreign    int // Secrets of others, for a restart
	Large      int // namespaces that three replicas watch
	Settling   time.Duration
	PodCount   int // created by one client through each kind of admission
	Window     time.Duration

	// Stage bounds one wait.
	Stage time.Duration

	Report   *result.Report
	Progress *world.Progress
}

// foreignSize is that of each foreign Secret, in bytes.
const foreignSize = 10 << 10

// variant is one pair of flags and key.
type variant struct {
	name  string
	flags []string
	key   devcluster.KeyType
}

// variants are as the table of targets has them: the slow key with the flags of every day,
// and the fast one where nothing else is to hold a program up.
func variants() []variant {
	return []variant{
		{"default flags, RSA", world.DefaultFlags, devcluster.RSA},
		{"unlimited QPS, P-256", world.Unlimited, devcluster.ECDSA},
	}
}

func (o *Options) programs() []world.Program {
	return []world.Program{world.Peer(), world.Ours(o.Binary, world.Manual), world.Ours(o.Binary, world.Auto)}
}

// turns calls do for every repetition, variant and program, the programs in turn: A B A B.
// After each repetition comes the floor.
func (o *Options) turns(ctx context.Context, do func(ctx context.Context, v variant, p world.Program) error,
	floor func(context.Context) error) error {
	for repetition := range o.Repetitions {
		for _, v := range variants() {
			for _, p := range o.programs() {
				if err := do(ctx, v, p); err != nil {
					return fmt.Errorf("repetition %d, %s, %s: %w", repetition+1, v.name, p.Name, err)
				}
			}
		}
		if err := floor(ctx); err != nil {
			return fmt.Errorf("repetition %d, floor: %w", repetition+1, err)
		}
	}
	return nil
}

// add keeps a value and prints it.
func (o *Options) add(key result.Key, value float64) {
	o.Report.Add(key, value)
	o.Progress.Linef("%-10s %-22s %-40s %-24s %8.4g %s", key.Scenario, key.Variant, key.Metric, key.Program, value, key.Unit)
}

// onFresh calls do with a control plane of its own, which ends with it.
func (o *Options) onFresh(ctx context.Context, options devcluster.Options, do func(*world.World) error) (err error) {
	w, err := world.New(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	return do(w)
}
