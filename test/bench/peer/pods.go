// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

// What may happen to a Pod on its way, which are the columns of the table.
const (
	noWebhook = "no webhook"
	inTree    = "in-tree plugin"
	// NullPatch is what ours is compared with.
	NullPatch = "null webhook, same patch"
	ours      = "sa-controller-manager"

	// parallel is how many Pods are created at a time in the second part.
	parallel = 100
)

// subject is one way to create a Pod.
type subject struct {
	name      string
	namespace string
	w         *world.World // the kube-apiserver that it is created at
	mutated   bool         // it gets its account and its token volume
}

// pods are created through each kind of admission, one after the other. There
// are three control planes, because the in-tree plugin is on or off in a
// whole kube-apiserver. Which webhook is asked follows from the namespace.
func (o *Options) pods(ctx context.Context) error {
	return o.onFresh(ctx, devcluster.Options{}, func(ctx context.Context, w *world.World) (err error) {
		const webhooks = "MutatingAdmissionWebhook,ValidatingAdmissionWebhook"
		subjects := []subject{{NullPatch, "bench-null", w, true}, {ours, "bench-ours", w, true}}
		for name, off := range map[string]string{noWebhook: "ServiceAccount," + webhooks, inTree: webhooks} {
			beside, failed := world.New(ctx, devcluster.Options{APIServerFlags: map[string][]string{"disable-admission-plugins": {off}}})
			if failed != nil {
				return failed
			}
			defer func() { err = errors.Join(err, beside.Stop()) }()
			subjects = append(subjects, subject{name, "bench-beside", beside, name == inTree})
		}
		stop, err := o.serve(ctx, w, subjects)
		if err != nil {
			return err
		}
		defer stop()
		for repetition := range o.Repetitions {
			if err := o.create(ctx, subjects); err != nil {
				return fmt.Errorf("repetition %d: %w", repetition+1, err)
			}
		}
		return nil
	})
}

// serve starts ours, confines it to its namespace once it is in effect, and starts the null webhook beside it.
func (o *Options) serve(ctx context.Context, w *world.World, subjects []subject) (stop func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Stage, errors.New("the webhooks are not in effect"))
	defer cancel()
	port, err := devcluster.FreePort()
	if err != nil {
		return nil, err
	}
	r, err := w.StartReady(ctx, o.Binary, world.Manual, "--webhook-port="+strconv.Itoa(port), "--webhook-registration=url")
	if err != nil {
		return nil, err
	}
	for _, s := range subjects {
		if err := s.w.MakeNamespace(ctx, s.namespace); err != nil {
			return nil, err
		}
		goal := s.w.Goal(world.Account(s.namespace, "default"))
		if s.w != w { // where no program runs
			if err := s.w.MakeAccount(ctx, s.namespace, "default"); err != nil {
				return nil, err
			}
		}
		if _, err := goal.Wait(ctx, r); err != nil {
			return nil, err
		}
	}
	// Nothing announces when kube-apiserver has learned of a registration.
	effective := func(s subject) error {
		o.statusf("pods, awaiting %s", s.name)
		return await.Poll(ctx, func(ctx context.Context) error { return s.w.TryPod(ctx, s.namespace, s.mutated) })
	}
	null, ours := subjects[0], subjects[1]
	if err := errors.Join(effective(ours), w.Confine(ctx, ours.namespace)); err != nil {
		return nil, err
	}
	stop, err = nullWebhook(ctx, w, null.namespace)
	if err != nil {
		return nil, err
	}
	for _, s := range subjects {
		if err := effective(s); err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

// create is one repetition.
func (o *Options) create(ctx context.Context, subjects []subject) error {
	const warming = 20
	o.statusf("pods, one client")
	latencies := map[string][]float64{}
	for i := range o.PodCount + warming {
		for j := range subjects {
			// Nobody always comes behind the same one.
			s := subjects[(i+j)%len(subjects)]
			took, err := timed(ctx, s, fmt.Sprintf("one-%d", i))
			if err != nil {
				return err
			}
			if i >= warming {
				latencies[s.name] = append(latencies[s.name], took)
			}
		}
	}
	o.addLatencies("one client", latencies)
	o.statusf("pods, %d clients", parallel)
	batches := max(1, o.PodCount/50)
	latencies = map[string][]float64{}
	for batch := range batches {
		for j := range subjects {
			s := subjects[(batch+j)%len(subjects)]
			took := make([]float64, parallel)
			if err := world.Parallel(ctx, parallel, parallel, func(ctx context.Context, i int) (err error) {
				took[i], err = timed(ctx, s, fmt.Sprintf("many-%d-%d", batch, i))
				return err
			}); err != nil {
				return err
			}
			latencies[s.name] = append(latencies[s.name], took...)
		}
	}
	o.addLatencies(strconv.Itoa(parallel)+" clients", latencies)
	var errs []error
	for _, s := range subjects {
		errs = append(errs, s.w.TakePods(ctx, s.namespace, o.PodCount+warming+batches*parallel, s.mutated))
	}
	return errors.Join(errs...)
}

// timed creates a Pod and returns how long it took, in milliseconds.
func timed(ctx context.Context, s subject, name string) (float64, error) {
	begun := time.Now()
	err := s.w.MakePod(ctx, s.namespace, name)
	return float64(time.Since(begun)) / float64(time.Millisecond), err
}

// addLatencies adds p50 and p99, and by how much p50 is above that without a webhook. The difference of two
// p99 is noise.
func (o *Options) addLatencies(variant string, latencies map[string][]float64) {
	for _, name := range []string{noWebhook, inTree, NullPatch, ours} {
		add := func(metric string, took float64) {
			o.add(result.Key{Scenario: "pods", Variant: variant, Metric: metric, Unit: "ms", Program: name}, took)
		}
		p50 := result.Quantile(latencies[name], 0.5)
		add("p50", p50)
		if name != noWebhook {
			add("added p50", p50-result.Quantile(latencies[noWebhook], 0.5))
		}
		add("p99", result.Quantile(latencies[name], 0.99))
	}
}
