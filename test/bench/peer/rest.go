// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/devcluster"
)

// foreignSize is that of each foreign Secret, in bytes.
const foreignSize = 10 << 10

// rest starts both programs in a cluster that has been in use, beside Secrets of others, with leader election, and ours
// with its webhook. Then nothing happens: once they have come to rest, it measures what they cost.
func (o *Options) rest(ctx context.Context) error {
	return onFresh(ctx, devcluster.Options{}, func(ctx context.Context, w *world) error {
		o.statusf("at rest, making the objects")
		r, err := o.start(ctx, w, ours)
		if err != nil {
			return err
		}
		if err := o.fill(ctx, w, r, ""); err != nil {
			return err
		}
		if _, err := r.Stop(); err != nil {
			return err
		}
		content := bytes.Repeat([]byte("0123456789abcdef"), foreignSize/16)
		if err := each(ctx, writers, o.Sizes.Foreign, func(ctx context.Context, i int) error {
			return w.makeSecret(ctx, bench(i%o.Sizes.Namespaces), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("foreign-%05d", i)}, Data: map[string][]byte{"content": content},
			})
		}); err != nil {
			return err
		}
		for repetition := range o.Sizes.Repetitions {
			o.statusf("at rest, %d of %d, settling for %v", repetition+1, o.Sizes.Repetitions, o.Settling)
			if err := o.settled(ctx, w); err != nil {
				return err
			}
		}
		return nil
	})
}

func (o *Options) settled(ctx context.Context, w *world) error {
	port, err := devcluster.FreePort()
	if err != nil {
		return err
	}
	var all []*running
	for program, flags := range map[string][]string{kcm: nil, ours: {fmt.Sprintf("--webhook-port=%d", port), "--webhook-registration=url"}} {
		r, err := o.replica(ctx, w, program, flags...)
		if err != nil {
			return err
		}
		all = append(all, r)
		o.add("start", "time until ready, s", program, r.ready.Seconds())
	}
	if err := sleep(ctx, o.Settling); err != nil {
		return err
	}
	before := map[*running]cost{}
	for _, r := range all {
		if before[r], err = r.cost(ctx); err != nil {
			return err
		}
		o.add("at rest", "memory, RssAnon, MiB", r.name, before[r].anon)
		o.add("at rest", "peak memory since the start, RSS, MiB", r.name, before[r].max)
	}
	if err := sleep(ctx, o.Window); err != nil {
		return err
	}
	var errs []error
	for _, r := range all {
		after, err := r.cost(ctx)
		spent, minutes := after.since(before[r]), after.at.Sub(before[r].at).Minutes()
		o.add("at rest", "CPU a minute, s", r.name, spent.cpu/minutes)
		o.add("at rest", "requests a minute", r.name, spent.methods.sum()/minutes)
		_, stopped := r.Stop()
		errs = append(errs, err, stopped)
	}
	return errors.Join(errs...)
}
