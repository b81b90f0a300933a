// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/integration/faultproxy"
)

// calls are all requests but watches and those for the Lease, which has faults of its own.
func calls(r faultproxy.Request) bool {
	return r.Verb != "watch" && r.Resource != "leases"
}

// meets has requests meet a fault until one of them has, and its time is over.
func meets(match faultproxy.Match, fault faultproxy.Fault) Inject {
	return func(_ context.Context, w *World, planned Planned) (func(context.Context) error, error) {
		return w.meet(planned.Kind, &faultproxy.Rule{Match: match, Fault: fault})
	}
}

func (w *World) meet(kind checker.Kind, rule *faultproxy.Rule) (func(context.Context) error, error) {
	w.use(rule)
	return func(ctx context.Context) error {
		w.awaitMet(ctx, kind, rule.Hits)
		w.use()
		return nil
	}, nil
}

// slowBodies cuts all watches too, so that lists come slowly.
func slowBodies(_ context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	heal, err := w.meet(fault.Kind, &faultproxy.Rule{
		Match: func(r faultproxy.Request) bool { return r.Resource != "leases" }, Fault: trickle,
	})
	w.cutAll()
	return heal, err
}

// cutAll returns how many watches that were.
func (w *World) cutAll() int {
	sum := 0
	for _, r := range w.all() {
		sum += r.now().proxy.CutWatches(faultproxy.Any)
	}
	return sum
}

// cutWatches cuts them again and again.
func cutWatches(_ context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	cutting, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var cut atomic.Int64
	go func() {
		defer close(ended)
		await.Every(cutting, fault.For/5, func(context.Context, int) { cut.Add(int64(w.cutAll())) })
	}()
	return func(ctx context.Context) error {
		w.awaitMet(ctx, fault.Kind, func() int { return int(cut.Load()) })
		stop()
		<-ended
		return nil
	}, nil
}

// expireWatches has every watch end with the news that its version is too old.
func expireWatches(_ context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	heal, err := w.meet(fault.Kind, &faultproxy.Rule{
		Match: faultproxy.On("watch", ""), Times: 2, Fault: faultproxy.Answer(http.StatusGone, metav1.StatusReasonExpired),
	})
	w.cutAll()
	return heal, err
}

// heldSince counts what the gate has held from now on.
func (w *World) heldSince() func() int {
	before := w.gate.held.Load()
	return func() int { return int(w.gate.held.Load() - before) }
}

func delayWatches(_ context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	held := w.heldSince()
	w.gate.slow(300 * time.Millisecond)
	return func(ctx context.Context) error {
		w.awaitMet(ctx, fault.Kind, held)
		w.gate.release()
		return nil
	}, nil
}

// halfOpenWatches has watches say nothing, and history end meanwhile. Then the connections
// turn out to be gone.
func halfOpenWatches(_ context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	held := w.heldSince()
	w.gate.shut("")
	return func(ctx context.Context) error {
		w.awaitMet(ctx, fault.Kind, held)
		// kube-apiserver may be away: then history stays.
		_ = w.compact(ctx)
		w.cutAll()
		w.gate.release()
		return nil
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

// changes are the calls that write.
func changes(r faultproxy.Request) bool {
	return calls(r) && r.Verb != "get" && r.Verb != "list"
}
