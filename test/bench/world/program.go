// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"time"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/measure"
)

// Names of the programs, which are the columns of the tables.
const (
	KCM    = "kube-controller-manager"
	Manual = "sa-controller-manager, `manual`"
	Auto   = "sa-controller-manager, `auto`"
)

// Start starts a program: kube-controller-manager with the four controllers that sa-controller-manager
// replaces and no other, or sa-controller-manager in one of its modes, without its webhook.
func (w *World) Start(binary devcluster.Binary, name string, flags ...string) (r *Running, err error) {
	r = &Running{Name: name, Started: time.Now()}
	common := append([]string{"--kubeconfig=" + w.kubeconfig, "-v=0"}, flags...)
	switch name {
	case KCM:
		r.Manager, err = w.StartKubeControllerManager(append(common,
			"--authentication-kubeconfig="+w.Kubeconfig(), "--authorization-kubeconfig="+w.Kubeconfig(), "--client-ca-file="+w.ClientCAFile(),
			"--controllers=serviceaccount-controller,serviceaccount-token-controller,"+
				"root-ca-certificate-publisher-controller,legacy-serviceaccount-token-cleaner-controller")...)
	case Auto:
		r.Manager, err = binary.StartManager(w.Cluster, append(common, "--token-secrets=auto")...)
	default:
		r.Manager, err = binary.StartManager(w.Cluster, append(common, "--token-secrets=manual")...)
	}
	return r, err
}

// StartReady returns once the program is ready.
func (w *World) StartReady(ctx context.Context, binary devcluster.Binary, name string, flags ...string) (*Running, error) {
	r, err := w.Start(binary, name, flags...)
	if err != nil {
		return nil, err
	}
	return r, r.awaitReady(ctx)
}

// Running is a program that was started.
type Running struct {
	*devcluster.Manager

	Name           string
	Started, Ready time.Time
}

// awaitReady asks every few milliseconds, because times of some hundred are measured.
func (r *Running) awaitReady(ctx context.Context) error {
	path := "/readyz"
	if r.Name == KCM {
		path = "/healthz" // it has no other
	}
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := r.Get(ctx, path)
		if err == nil {
			r.Ready = time.Now()
			return nil
		}
		select {
		case <-ticker.C:
		case <-r.Done():
			return fmt.Errorf("%s has ended by itself:\n%s", r.Name, r.LogTail(20))
		case <-ctx.Done():
			return fmt.Errorf("await that %s is ready: %w: %w", r.Name, context.Cause(ctx), err)
		}
	}
}

// Cost is what a program has cost by a moment.
type Cost struct {
	At            time.Time
	CPU           float64 // seconds
	Requests      float64 // that it has sent
	RSSAnon, Peak float64 // memory, MiB
}

// Cost reads /proc after the metrics, the first time, and so counts one scrape in each window.
func (r *Running) Cost(ctx context.Context) (Cost, error) {
	metrics, err := r.Metrics(ctx)
	if err != nil {
		return Cost{}, fmt.Errorf("read the metrics of %s: %w", r.Name, err)
	}
	used, err := measure.CPU(r.PID())
	if err != nil {
		return Cost{}, err
	}
	memory, err := measure.MemoryOf(r.PID())
	return Cost{
		time.Now(), used.Seconds(), metrics.Sum("rest_client_requests_total", nil), float64(memory.Anon) / 1024, float64(memory.Peak) / 1024,
	}, err
}
