// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo starts a real control plane and sa-controller-manager beside it,
// then tells in steps what the one does for the other. Every step is verified
// against the API; the exit code is 0 only if all were.
//
// What it prints says what was observed, never what was hoped for. It shows
// tokens decoded and without their signatures, so its output can be shared.
// Nothing is left behind, also after Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/narrate"
)

// exitInterrupted is what a shell reports for a process that Ctrl-C ended.
const exitInterrupted = 130

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first Ctrl-C asks; the second gets the default, which is to die at once.
	context.AfterFunc(ctx, stop)

	out := narrate.NewPrinter(os.Stdout)
	err := demonstrate(ctx, out)
	if ctx.Err() != nil {
		out.Linef("\nInterrupted.")
		return exitInterrupted
	}
	if err != nil {
		out.Failure(err)
		return 1
	}
	return 0
}

// demonstrate starts all that the story needs, tells it and cleans up.
func demonstrate(ctx context.Context, out *narrate.Printer) (err error) {
	watch := narrate.StartWatch()
	out.Linef("sa-controller-manager beside a real kube-apiserver")
	out.Linef("")
	binary, err := devcluster.FindBinary(ctx)
	if err != nil {
		return err
	}
	cluster, err := devcluster.Start(ctx, devcluster.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()

	story, err := newStory(out, cluster, binary)
	if err != nil {
		return err
	}
	version, err := story.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask kube-apiserver for its version: %w", err)
	}
	out.Began("etcd and kube-apiserver "+version.GitVersion+", without its ServiceAccount admission plugin", watch.Lap())

	if err := story.startManager(ctx, firstFlags()); err != nil {
		return err
	}
	out.Began("sa-controller-manager "+strings.Join(firstFlags(), " "), watch.Lap())
	if err := story.tell(ctx, steps()); err != nil {
		return err
	}
	out.Linef("")
	out.Linef("All %d steps verified in %s.", len(steps()), watch.Total())
	return nil
}
