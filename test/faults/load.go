// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/overload"
	"sa-controller-manager/test/faults/workload"
)

const (
	// rate is what kube-apiserver asks meanwhile: 20 Pods a second.
	rate = 50 * time.Millisecond
	// controlTimeout is how long a build without a plant has for what a planted one must
	// not manage.
	controlTimeout = 30 * time.Second
)

// load is what broken clients attack, and what somebody asks for meanwhile.
type load struct {
	flags            []string // of the replica
	network, address string
	clients          []overload.Client
	model            workload.Model
	// before returns once the replica answers.
	before func(context.Context) error
	// ask asks in order until ctx ends.
	ask func(ctx context.Context) asked
	// what is asked for, and the promise that it is answered in time.
	what    string
	promise int
}

// asked is what became of calls in order.
type asked struct {
	took   []time.Duration
	calls  []workload.Call
	tokens map[string]bool // what was signed
	found  []checker.Violation
}

// Load has broken clients attack one replica of an ordinary build, while kube-apiserver
// goes on to ask it.
func (w *World) Load(ctx context.Context, binary devcluster.Binary) (checker.Outcome, string, error) {
	// As on a node of the control plane: nobody is between kube-apiserver and the webhook.
	port, err := devcluster.FreePort()
	if err != nil {
		return checker.Outcome{}, "", err
	}
	n := workload.NewNamespace("load-pods")
	return w.underLoad(ctx, binary, load{
		flags:   []string{"--webhook-bind-address=127.0.0.1", "--webhook-port=" + strconv.Itoa(port)},
		network: "tcp", address: at("127.0.0.1", port), clients: overload.WebhookClients(),
		model: workload.Model{n.Name: n}, what: "Pod", promise: 5,
		before: func(ctx context.Context) error {
			return errors.Join(w.client.CreateNamespace(ctx, n.Name), w.awaitAdmitted(ctx, n.Name))
		},
		ask: func(ctx context.Context) (a asked) {
			a.calls = w.ask(ctx, n.Name)
			for _, call := range a.calls {
				a.took = append(a.took, call.Ended.Sub(call.Begun))
			}
			return a
		},
	})
}

// underLoad has broken clients come while somebody asks in order, and awaits that nothing is left of
// them.
func (w *World) underLoad(ctx context.Context, binary devcluster.Binary, l load) (outcome checker.Outcome, summary string, err error) {
	w.forget()
	w.monitor.setRace(false)
	if err := w.deploy(ctx, binary, 1, l.flags...); err != nil {
		return outcome, "", err
	}
	defer func() { err = errors.Join(err, w.retire()) }()
	if err := l.before(ctx); err != nil {
		return outcome, "", err
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	answers := make(chan asked, 1)
	go func() { answers <- l.ask(asking) }()
	came, loadErr := overload.Run(ctx, l.network, l.address, l.clients, w.Busy)
	stop()
	a := <-answers
	slices.Sort(a.took)
	came.Log(w.log)
	w.awaitRest(ctx)
	outcome, err = w.check(ctx, scope{model: l.model}, a.calls, controlTimeout)
	outcome.Violations = append(outcome.Violations, a.found...)
	outcome.Tokens += len(a.tokens)
	for _, t := range w.terms() {
		if what := checker.Leak(t.manager.Logs(), checker.SignaturesOf(a.tokens)); what != "" {
			outcome.Violations = append(outcome.Violations, checker.Violated(6, "a log holds %s that was signed on the socket", what))
		}
	}
	unsure := overload.JudgeTimes(&outcome, l.promise, l.what, a.took, came)
	summary = fmt.Sprintf("%v; %d times %s, p50 %v, p99 %v; at most %d goroutines, %d MiB, %d s without an answer",
		came, len(a.took), l.what, overload.Quantile(a.took, 50), overload.Quantile(a.took, 99),
		outcome.Most.Goroutines, outcome.Most.RssAnon>>10, outcome.Most.Unanswered)
	return outcome, summary, errors.Join(err, loadErr, came.AddTo(&outcome, unsure))
}

// awaitAdmitted returns once a Pod is admitted with all it is owed: kube-apiserver has to know
// where to ask now. Before that it asks those who are gone.
func (w *World) awaitAdmitted(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
	defer cancel()
	return workload.Retry(ctx, "create a Pod", func(ctx context.Context) error {
		pod, err := w.client.CoreV1().Pods(namespace).Create(ctx, workload.NewPod("first", ""),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if what := workload.Lacks(pod, workload.DefaultAccount); what != "" {
			return fmt.Errorf("it lacks its %s", what)
		}
		return nil
	})
}

// ask creates Pods at a steady rate, every second one a large one, and nothing is kept of them.
func (w *World) ask(ctx context.Context, namespace string) []workload.Call {
	var mu sync.Mutex
	var calls []workload.Call
	await.Every(ctx, rate, func(ctx context.Context, i int) {
		limit, cancel := context.WithTimeout(ctx, workload.PodTimeout)
		defer cancel()
		one := workload.Call{Begun: time.Now(), Namespace: namespace, Name: "dry-run"}
		asked := workload.NewPod("dry-run", "")
		if i%2 == 1 { // its body is one of those that share a limit
			asked.Annotations = map[string]string{"padding": strings.Repeat("x", 24<<10)}
		}
		pod, err := w.client.CoreV1().Pods(namespace).Create(limit, asked, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		one.Ended, one.Err = time.Now(), err
		if err == nil {
			one.Lacks = workload.Lacks(pod, workload.DefaultAccount)
		}
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, one)
	})
	return calls
}
