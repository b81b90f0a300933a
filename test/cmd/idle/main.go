// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command idle measures what sa-controller-manager costs while nothing happens, beside a
// kube-controller-manager that runs the four controllers it replaces and no other, on the
// same real control plane. It prints a table and ends by itself. Nothing is left behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"sa-controller-manager/test/devcluster"
)

// settling is how long both may take to finish what they do at a start: longer than the
// Go runtime waits before it collects garbage unasked for, which is two minutes.
const settling = 150 * time.Second

func main() {
	objects := flag.Int("objects", 500, "namespaces, each with an account and a filled token Secret")
	window := flag.Duration("for", 5*time.Minute, "how long to measure")
	flag.Parse()
	os.Exit(run(*objects, *window))
}

// run is a function of its own so that what it defers happens before the exit.
func run(objects int, window time.Duration) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, objects, window); err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		return 1
	}
	return 0
}

func measure(ctx context.Context, objects int, window time.Duration) (err error) {
	binary, err := devcluster.FindBinary(ctx)
	if err != nil {
		return err
	}
	cluster, err := devcluster.Start(ctx, devcluster.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	processes, err := start(ctx, cluster, binary)
	if err != nil {
		return err
	}
	fmt.Printf("Making %d namespaces, each with an account and a token Secret.\n", objects)
	if err := populate(ctx, cluster, objects); err != nil {
		return err
	}
	fmt.Printf("Waiting %v for both to settle, then measuring for %v.\n\n", settling, window)
	if err := sleep(ctx, settling); err != nil {
		return err
	}
	before, err := observeAll(ctx, processes)
	if err != nil {
		return err
	}
	if err := sleep(ctx, window); err != nil {
		return err
	}
	after, err := observeAll(ctx, processes)
	if err != nil {
		return err
	}
	return printTable(os.Stdout, processes, before, after)
}

// start has both work with the same key and root CA, so that they agree in all.
func start(ctx context.Context, cluster *devcluster.Cluster, binary devcluster.Binary) ([]process, error) {
	port, err := devcluster.FreePort()
	if err != nil {
		return nil, err
	}
	ours, err := binary.StartManager(cluster, "--token-secrets=manual", "--leader-elect=true",
		"--webhook-port="+strconv.Itoa(port), "--webhook-registration=url")
	if err != nil {
		return nil, err
	}
	kcm, err := cluster.StartKubeControllerManager("--leader-elect=true",
		"--authentication-kubeconfig="+cluster.Kubeconfig(), "--authorization-kubeconfig="+cluster.Kubeconfig(),
		"--client-ca-file="+cluster.ClientCAFile(), "--controllers="+
			"serviceaccount-controller,serviceaccount-token-controller,"+
			"root-ca-certificate-publisher-controller,legacy-serviceaccount-token-cleaner-controller")
	if err != nil {
		return nil, err
	}
	processes := []process{{"sa-controller-manager, with its webhook", ours}, {"kube-controller-manager, these four alone", kcm}}
	for _, p := range processes {
		if err := p.Ready(ctx); err != nil {
			return nil, err
		}
	}
	return processes, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
