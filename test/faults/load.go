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

// Load has broken clients attack one replica of an ordinary build, while kube-apiserver
// goes on to ask it.
func (w *World) Load(ctx context.Context, binary devcluster.Binary) (checker.Outcome, string, error) {
	w.forget()
	w.monitor.setRace(false)
	// As on a node of the control plane: nobody is between kube-apiserver and the webhook.
	port, err := devcluster.FreePort()
	if err != nil {
		return checker.Outcome{}, "", err
	}
	if err := w.deploy(ctx, binary, 1, "--webhook-bind-address=127.0.0.1", "--webhook-port="+strconv.Itoa(port)); err != nil {
		return checker.Outcome{}, "", err
	}
	n := workload.NewNamespace("load-pods")
	if err := w.client.CreateNamespace(ctx, n.Name); err != nil {
		return checker.Outcome{}, "", errors.Join(err, w.retire())
	}
	if err := w.awaitAdmitted(ctx, n.Name); err != nil {
		return checker.Outcome{}, "", errors.Join(err, w.retire())
	}
	var calls []workload.Call
	came, loadErr := w.underLoad(ctx, "tcp", at("127.0.0.1", port), overload.WebhookClients(),
		func(ctx context.Context) { calls = w.ask(ctx, n.Name) })
	outcome, err := w.check(ctx, scope{model: workload.Model{n.Name: n}}, calls, controlTimeout)
	var took []time.Duration
	for _, call := range calls {
		took = append(took, call.Ended.Sub(call.Begun))
	}
	slices.Sort(took)
	unsure := overload.JudgeTimes(&outcome, 5, "Pod", took, came)
	err = errors.Join(err, loadErr, came.AddTo(&outcome, unsure), w.retire())
	return outcome, loadSummary(came, "Pods", took, outcome), err
}

// underLoad has broken clients come while somebody asks in order, and awaits that nothing is left of
// them.
func (w *World) underLoad(ctx context.Context, network, address string, clients []overload.Client,
	ask func(context.Context)) (overload.Result, error) {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		ask(asking)
	}()
	came, err := overload.Run(ctx, network, address, clients, w.Busy)
	stop()
	<-asked
	came.Log(w.log)
	w.awaitRest(ctx)
	return came, err
}

func loadSummary(came overload.Result, what string, took []time.Duration, o checker.Outcome) string {
	return fmt.Sprintf("%v; %d %s, p50 %v, p99 %v; at most %d goroutines, %d MiB, %d s without an answer",
		came, len(took), what, overload.Quantile(took, 50), overload.Quantile(took, 99), o.Most.Goroutines, o.Most.RssAnon>>10, o.Most.Unanswered)
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
