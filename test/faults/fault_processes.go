// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

// onLeader begins a fault of the process that leads.
func onLeader(do func(r *Replica) (heal func(context.Context) error, err error)) Inject {
	return func(ctx context.Context, w *World, _ Planned) (func(context.Context) error, error) {
		leader, err := w.leader(ctx)
		if err != nil {
			return nil, err
		}
		return do(leader)
	}
}

func kill(r *Replica) (func(context.Context) error, error) {
	if err := r.kill(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return r.ready(ctx)
	}, nil
}

func pause(r *Replica) (func(context.Context) error, error) {
	if err := r.pause(); err != nil {
		return nil, err
	}
	return func(context.Context) error { return r.resume() }, nil
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

// quickPings has the binary find out within 5 s, in place of 45, that nobody answers on a
// connection (k8s.io/apimachinery pkg/util/net, http.go).
func quickPings(binary devcluster.Binary) devcluster.Binary {
	binary.Env = append(binary.Env, "HTTP2_READ_IDLE_TIMEOUT_SECONDS=2", "HTTP2_PING_TIMEOUT_SECONDS=3")
	return binary
}

// pingTimeout is how long that may take on a machine that is busy, and while other faults keep
// a process from connecting again.
const pingTimeout = 30 * time.Second

// silenceConnections has nothing pass any more through the connections that are open, and
// no peer close them. Only an unanswered ping shows it, and a process that has noticed opens
// another connection.
func silenceConnections(_ context.Context, w *World, _ Planned) (func(context.Context) error, error) {
	replicas := w.all()
	struck := make([]*term, len(replicas))
	ends := make([]func(), len(replicas))
	for i, r := range replicas {
		struck[i] = r.now()
		ends[i] = struck[i].proxy.Silence()
	}
	begun := time.Now()
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		for i, r := range replicas {
			if err := r.awaitNewWatch(ctx, struck[i], begun); err != nil {
				w.report(checker.Violated(1, "%s keeps using a silent connection: %v", r.name, err))
			}
		}
		for _, end := range ends {
			end()
		}
		return nil
	}, nil
}

// awaitNewWatch returns once the process has begun a watch since, or has ended.
func (r *Replica) awaitNewWatch(ctx context.Context, t *term, since time.Time) error {
	begun := func(request faultproxy.Request) bool { return request.Verb == "watch" && request.Began.After(since) }
	return await.Poll(ctx, func(context.Context) error {
		if gone(t) || len(t.proxy.Requests(begun)) > 0 {
			return nil
		}
		return errors.New("it has begun no watch since")
	})
}
