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
	Floor  = "no controller"
)

// Flags of which a program is given no more than it needs, or a client that knows no limit.
var (
	DefaultFlags = []string(nil)
	Unlimited    = []string{"--kube-api-qps=1e6", "--kube-api-burst=1000000"}
)

// PeerControllers are those of kube-controller-manager that sa-controller-manager
// replaces, for its flag --controllers.
const PeerControllers = "serviceaccount-controller,serviceaccount-token-controller," +
	"root-ca-certificate-publisher-controller,legacy-serviceaccount-token-cleaner-controller"

// Program is what is measured.
type Program struct {
	Name  string
	start func(w *World, flags []string) (*devcluster.Manager, error)
}

// Peer is kube-controller-manager with the four controllers that sa-controller-manager
// replaces and no other.
func Peer() Program {
	return Program{KCM, func(w *World, flags []string) (*devcluster.Manager, error) {
		return w.StartKubeControllerManager(append([]string{
			"--kubeconfig=" + w.kubeconfig, "-v=0",
			"--authentication-kubeconfig=" + w.Kubeconfig(), "--authorization-kubeconfig=" + w.Kubeconfig(),
			"--client-ca-file=" + w.ClientCAFile(),
			"--controllers=" + PeerControllers,
		}, flags...)...)
	}}
}

// Ours is sa-controller-manager with all its controllers, in one of its modes, without
// its webhook.
func Ours(binary devcluster.Binary, name string) Program {
	mode := map[string]string{Manual: "manual", Auto: "auto"}[name]
	return Program{name, func(w *World, flags []string) (*devcluster.Manager, error) {
		return binary.StartManager(w.Cluster, append([]string{
			"--kubeconfig=" + w.kubeconfig, "-v=0", "--token-secrets=" + mode,
		}, flags...)...)
	}}
}

// Running is a program that was started.
type Running struct {
	*devcluster.Manager

	Name    string
	Started time.Time
	Ready   time.Time // zero before AwaitReady
}

// Start starts a program.
func (w *World) Start(p Program, flags ...string) (*Running, error) {
	r := &Running{Name: p.Name, Started: time.Now()}
	var err error
	if r.Manager, err = p.start(w, flags); err != nil {
		return nil, err
	}
	return r, nil
}

// AwaitReady asks every few milliseconds, because times of some hundred are measured.
func (r *Running) AwaitReady(ctx context.Context) error {
	path := "/readyz"
	if r.Name == KCM {
		path = "/healthz" // it has no other
	}
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		if _, last = r.Get(ctx, path); last == nil {
			r.Ready = time.Now()
			return nil
		}
		select {
		case <-ticker.C:
		case <-r.Done():
			return fmt.Errorf("%s has ended by itself:\n%s", r.Name, r.LogTail(20))
		case <-ctx.Done():
			return fmt.Errorf("await that %s is ready: %w: %w", r.Name, context.Cause(ctx), last)
		}
	}
}

// CPU is the processor time in seconds that it has used.
func (r *Running) CPU() (float64, error) {
	used, err := measure.CPU(r.PID())
	return used.Seconds(), err
}

// Sent is the number of requests that it has sent.
func (r *Running) Sent(ctx context.Context) (float64, error) {
	metrics, err := r.Metrics(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the metrics of %s: %w", r.Name, err)
	}
	return metrics.Sum("rest_client_requests_total", nil), nil
}
