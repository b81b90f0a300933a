// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"time"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

func killLeader(ctx context.Context, w *World) (func(context.Context) error, error) {
	leader, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	if err := leader.kill(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return leader.ready(ctx)
	}, nil
}

func pauseLeader(ctx context.Context, w *World) (func(context.Context) error, error) {
	leader, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return leader.now().resume() }, leader.now().manager.Pause()
}

func killAPIServer(_ context.Context, w *World) (func(context.Context) error, error) {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return w.cluster.StartAPIServer(ctx)
	}, w.cluster.KillAPIServer()
}

func killEtcd(_ context.Context, w *World) (func(context.Context) error, error) {
	return func(ctx context.Context) error {
		if err := w.cluster.StartEtcd(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return w.cluster.AwaitAPIServer(ctx)
	}, w.cluster.KillEtcd()
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
func silenceConnections(_ context.Context, w *World) (func(context.Context) error, error) {
	struck := map[*Replica]*term{}
	for _, r := range w.replicas {
		struck[r] = r.now()
		struck[r].proxy.Silence()
	}
	begun := time.Now()
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		for r, t := range struck {
			err := t.awaitRequest(ctx, func(r faultproxy.Request) bool { return r.Verb == "watch" && r.Began.After(begun) })
			if err != nil {
				w.report(checker.Violated(1, "%s keeps using a silent connection: %v", r.name, err))
			}
		}
		for _, t := range struck {
			t.proxy.EndSilence()
		}
		return nil
	}, nil
}
