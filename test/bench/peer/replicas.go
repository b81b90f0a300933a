// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"time"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
)

// Leading is what the replicas that wait are compared with.
const Leading = "the replica that leads"

// Replicas measures what three replicas cost while nothing happens in a large cluster. Each has a
// proxy that counts its requests.
func (o *Options) Replicas(ctx context.Context) error {
	return o.onFresh(ctx, devcluster.Options{}, func(w *world.World) (err error) {
		large := *o
		large.Namespaces = o.Large
		names := []string{Leading, "a replica that waits", "a replica that waits"}
		var all []*world.Running
		var proxies []*faultproxy.Proxy
		for i := range names {
			proxy, err := faultproxy.Start(w.Config())
			if err != nil {
				return err
			}
			defer proxy.Close()
			kubeconfig := filepath.Join(w.Dir(), "replica-"+strconv.Itoa(i))
			if err := proxy.WriteKubeconfig(kubeconfig); err != nil {
				return err
			}
			r, err := o.replica(ctx, w, world.Ours(o.Binary, world.Manual), "--kubeconfig="+kubeconfig)
			if err != nil {
				return err
			}
			// Before its proxy, which waits for its watches.
			defer func() { _, stopped := r.Stop(); err = errors.Join(err, stopped) }()
			all, proxies = append(all, r), append(proxies, proxy)
		}
		o.Progress.Statusf("replicas, making namespaces")
		if err := large.populateIdle(ctx, w, all[0]); err != nil {
			return err
		}
		o.Progress.Statusf("replicas, waiting %v for all to settle", o.Settling)
		if err := world.Sleep(ctx, o.Settling); err != nil {
			return err
		}
		for range o.Repetitions {
			begun := time.Now()
			var before []float64
			for _, r := range all {
				used, err := r.CPU()
				if err != nil {
					return err
				}
				before = append(before, used)
			}
			if err := world.Sleep(ctx, o.Window); err != nil {
				return err
			}
			for i, r := range all {
				used, err := r.CPU()
				if err != nil {
					return err
				}
				minutes := time.Since(begun).Minutes()
				recent := func(r faultproxy.Request) bool { return r.Began.After(begun) }
				others := func(r faultproxy.Request) bool { return recent(r) && r.Verb != "watch" && r.Resource != "leases" }
				add := func(metric, unit string, value float64) {
					o.add(result.Key{Scenario: "replicas", Metric: metric + " a minute", Unit: unit, Program: names[i]}, value/minutes)
				}
				add("requests", "", float64(len(proxies[i].Requests(recent))))
				add("of these, neither of the Lease nor watches,", "", float64(len(proxies[i].Requests(others))))
				add("CPU", "s", used-before[i])
			}
		}
		return nil
	})
}
