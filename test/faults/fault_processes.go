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

func killReplica(_ context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	return w.kill(w.all()[fault.Replica])
}

func killLeader(ctx context.Context, w *World, _ Planned) (func(context.Context) error, error) {
	leader, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	return w.kill(leader)
}

func (w *World) kill(r *Replica) (func(context.Context) error, error) {
	if err := r.kill(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		// One that finds garbage in its files when it starts ends, as it should.
		w.files.Lock()
		defer w.files.Unlock()
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return r.ready(ctx)
	}, nil
}

func pauseReplica(_ context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	return pause(w.all()[fault.Replica])
}

// pauseLeader lasts for longer than the lease: another one leads when it goes on.
func pauseLeader(ctx context.Context, w *World, _ Planned) (func(context.Context) error, error) {
	leader, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	return pause(leader)
}

func pause(r *Replica) (func(context.Context) error, error) {
	if err := r.pause(); err != nil {
		return nil, err
	}
	return func(context.Context) error { return r.resume() }, nil
}

// partitionLeader holds all that the leader sends, for longer than the lease. What it
// still waits for an answer to arrives in the end, when another one leads.
func partitionLeader(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	leader, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	over := make(chan struct{})
	rule := &faultproxy.Rule{Match: faultproxy.Any, Fault: faultproxy.Hold(over, faultproxy.Forward)}
	leader.use(rule)
	leader.now().proxy.CutWatches(faultproxy.Any)
	return func(ctx context.Context) error {
		w.awaitMet(ctx, fault.Kind, rule.Hits)
		close(over)
		leader.use()
		return nil
	}, nil
}

// successorTimeout is how long the others may take to lead once the leader cannot, on a
// machine that is busy. It is several times the lease.
const successorTimeout = 20 * time.Second

// silenceLeader has nothing pass between the leader and kube-apiserver any more, on no
// connection, and nobody hang up: as when a cable is cut. Its own clock has to tell it that it
// leads no more. What it sends meanwhile never arrives, so that the others have to take over;
// what it would go on to write in the end, the journal shows.
func silenceLeader(ctx context.Context, w *World, _ Planned) (func(context.Context) error, error) {
	leader, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	end := leader.now().proxy.SilenceAll()
	return func(ctx context.Context) error {
		defer end()
		if err := w.awaitSuccessor(ctx, leader); err != nil {
			w.report(checker.Violated(1, "no other replica became leader while the leader's connections were silent: %v", err))
		}
		return nil
	}, nil
}

func (w *World) awaitSuccessor(ctx context.Context, of *Replica) error {
	ctx, cancel := context.WithTimeout(ctx, successorTimeout)
	defer cancel()
	return await.Poll(ctx, func(ctx context.Context) error {
		leader, err := w.leader(ctx)
		if err == nil && leader == of {
			err = fmt.Errorf("%s holds the Lease", of.name)
		}
		return err
	})
}

// holdLease keeps the leader from its Lease, and from nothing else: it could go on to
// write if only it wanted to.
func holdLease(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	leader, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	over := make(chan struct{})
	rule := &faultproxy.Rule{Match: faultproxy.On("", "leases"), Fault: faultproxy.Hold(over, faultproxy.Forward)}
	leader.use(rule)
	return func(ctx context.Context) error {
		w.awaitMet(ctx, fault.Kind, rule.Hits)
		close(over)
		leader.use()
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
	for _, r := range w.all() {
		r.now().proxy.CutWatches(faultproxy.Any)
	}
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
