// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

// strike begins a fault of one process and returns what ends it.
type strike func(ctx context.Context, r *Replica, kind checker.Kind) (heal func(context.Context) error, err error)

func onReplica(do strike) Inject {
	return func(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
		return do(ctx, w.all()[fault.Replica], fault.Kind)
	}
}

func onLeader(do strike) Inject {
	return func(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
		leader, err := w.leader(ctx)
		if err != nil {
			return nil, err
		}
		return do(ctx, leader, fault.Kind)
	}
}

func kill(_ context.Context, r *Replica, _ checker.Kind) (func(context.Context) error, error) {
	if err := r.kill(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		// One that finds garbage in its files when it starts ends, as it should.
		r.world.files.Lock()
		defer r.world.files.Unlock()
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return r.ready(ctx)
	}, nil
}

func pause(_ context.Context, r *Replica, _ checker.Kind) (func(context.Context) error, error) {
	if err := r.pause(); err != nil {
		return nil, err
	}
	return func(context.Context) error { return r.resume() }, nil
}

// hold keeps what a process sends of these requests, and lets go of it in the end, when another
// replica leads.
func hold(match faultproxy.Match) strike {
	return func(_ context.Context, r *Replica, kind checker.Kind) (func(context.Context) error, error) {
		over := make(chan struct{})
		rule := &faultproxy.Rule{Match: match, Fault: faultproxy.Hold(over, faultproxy.Forward)}
		r.use(rule)
		r.now().proxy.CutWatches(match)
		return func(ctx context.Context) error {
			r.world.awaitMet(ctx, kind, rule.Hits)
			close(over)
			r.use()
			return nil
		}, nil
	}
}

// successorTimeout is how long the others may take to lead once the leader cannot, on a
// machine that is busy. It is several times the lease.
const successorTimeout = 20 * time.Second

// silence has nothing pass between the leader and kube-apiserver any more, on no
// connection, and nobody hang up: as when a cable is cut. Its own clock has to tell it that it
// leads no more. What it sends meanwhile never arrives, so that the others have to take over;
// what it would go on to write in the end, the journal shows.
func silence(_ context.Context, leader *Replica, _ checker.Kind) (func(context.Context) error, error) {
	w, end := leader.world, leader.now().proxy.SilenceAll()
	return func(ctx context.Context) error {
		defer end()
		ctx, cancel := context.WithTimeout(ctx, successorTimeout)
		defer cancel()
		err := await.Poll(ctx, func(ctx context.Context) error {
			now, err := w.leader(ctx)
			if err == nil && now == leader {
				err = fmt.Errorf("%s holds the Lease", leader.name)
			}
			return err
		})
		if err != nil {
			w.report(checker.Violated(1, "no other replica became leader while the leader's connections were silent: %v", err))
		}
		return nil
	}, nil
}

func killAPIServer(_ context.Context, w *World, _ Planned) (func(context.Context) error, error) {
	if err := w.cluster.KillAPIServer(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return w.cluster.StartAPIServer(ctx)
	}, nil
}

func killEtcd(_ context.Context, w *World, _ Planned) (func(context.Context) error, error) {
	if err := w.cluster.KillEtcd(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := w.cluster.StartEtcd(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return w.cluster.AwaitAPIServer(ctx)
	}, nil
}

// compactEtcd compacts etcd up to now and cuts all watches, so a client that was behind has to list
// again.
func compactEtcd(ctx context.Context, w *World, _ Planned) (func(context.Context) error, error) {
	if err := w.compact(ctx); err != nil {
		return nil, err
	}
	w.cutAll()
	return func(context.Context) error { return nil }, nil
}

func (w *World) compact(ctx context.Context) error {
	list, err := w.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("ask for the newest revision: %w", err)
	}
	body, err := json.Marshal(map[string]any{"revision": list.ResourceVersion, "physical": true})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.cluster.EtcdURL()+"/v3/kv/compaction", bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("compact etcd: %s", response.Status)
	}
	return nil
}
