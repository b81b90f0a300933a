// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

// What may happen to a Pod on its way, which are the columns of the table.
const (
	noWebhook = "no webhook"
	inTree    = "in-tree plugin"
	null      = "null webhook"
	// NullPatch is what ours is compared with.
	NullPatch = "null webhook, same patch"
	ours      = "sa-controller-manager"
)

// parallel is how many Pods are created at a time in the second part.
const parallel = 100

// subject is one way to create a Pod.
type subject struct {
	name      string
	namespace string
	w         *world.World // the kube-apiserver that it is created at
	mutated   bool         // it gets its account and its token volume
}

// Pods are created through each kind of admission, one after the other. There
// are three kube-apiservers on one etcd, because the in-tree plugin is on or off in a
// whole kube-apiserver. Which webhook is asked follows from the namespace.
func (o *Options) Pods(ctx context.Context) error {
	return o.onFresh(ctx, devcluster.Options{}, func(w *world.World) (err error) {
		p := &pods{Options: o, w: w}
		defer func() { err = errors.Join(err, p.stop()) }()
		if err := p.start(ctx); err != nil {
			return err
		}
		for repetition := range o.Repetitions {
			if err := p.measure(ctx); err != nil {
				return fmt.Errorf("repetition %d: %w", repetition+1, err)
			}
		}
		return nil
	})
}

// measure is one repetition.
func (p *pods) measure(ctx context.Context) error {
	const warming = 20
	p.Progress.Statusf("Pods, one client")
	latencies := map[string][]float64{}
	for i := range p.PodCount + warming {
		for j := range p.subjects {
			// Nobody always comes behind the same one.
			s := p.subjects[(i+j)%len(p.subjects)]
			took, err := p.create(ctx, s, fmt.Sprintf("one-%d", i))
			if err != nil {
				return err
			}
			if i >= warming {
				latencies[s.name] = append(latencies[s.name], took)
			}
		}
	}
	p.report("one client", latencies)
	p.Progress.Statusf("Pods, %d clients", parallel)
	rounds := max(1, p.PodCount/50)
	latencies = map[string][]float64{}
	for round := range rounds {
		for j := range p.subjects {
			s := p.subjects[(round+j)%len(p.subjects)]
			took, err := p.createAll(ctx, s, round)
			if err != nil {
				return err
			}
			latencies[s.name] = append(latencies[s.name], took...)
		}
	}
	p.report(strconv.Itoa(parallel)+" clients", latencies)
	return p.verify(ctx, p.PodCount+warming+rounds*parallel)
}

// report adds p50 and p99, and by how much p50 is above that without a webhook. The difference of two
// p99 is noise.
func (p *pods) report(variant string, latencies map[string][]float64) {
	for _, s := range p.subjects {
		add := func(metric string, took float64) {
			p.add(result.Key{Scenario: "pods", Variant: variant, Metric: metric, Unit: "ms", Program: s.name}, took)
		}
		p50 := result.Quantile(latencies[s.name], 0.5)
		add("p50", p50)
		if s.name != noWebhook {
			add("added p50", p50-result.Quantile(latencies[noWebhook], 0.5))
		}
		add("p99", result.Quantile(latencies[s.name], 0.99))
	}
}

// create returns how long it took, in milliseconds.
func (p *pods) create(ctx context.Context, s subject, name string) (float64, error) {
	begun := time.Now()
	err := s.w.MakePod(ctx, s.namespace, name)
	return float64(time.Since(begun)) / float64(time.Millisecond), err
}

func (p *pods) createAll(ctx context.Context, s subject, round int) ([]float64, error) {
	took, errs := make([]float64, parallel), make([]error, parallel)
	done := make(chan struct{})
	for i := range parallel {
		go func() {
			took[i], errs[i] = p.create(ctx, s, fmt.Sprintf("many-%d-%d", round, i))
			done <- struct{}{}
		}()
	}
	for range parallel {
		<-done
	}
	return took, errors.Join(errs...)
}

// verify looks at all Pods that were made, and deletes them.
func (p *pods) verify(ctx context.Context, made int) error {
	p.Progress.Statusf("Pods, looking at the Pods")
	for _, s := range p.subjects {
		all, mutated, err := s.w.CountPods(ctx, s.namespace)
		if err != nil {
			return err
		}
		want := 0
		if s.mutated {
			want = made
		}
		if err := world.Verify(
			world.Check{What: "Pods of " + s.name, Got: all, Want: made},
			world.Check{What: "Pods with a token volume of " + s.name, Got: mutated, Want: want},
		); err != nil {
			return err
		}
		if err := s.w.DeletePods(ctx, s.namespace); err != nil {
			return err
		}
	}
	return nil
}
