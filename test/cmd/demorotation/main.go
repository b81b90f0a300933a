// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demorotation rotates the keys of a cluster that is in use, from RSA to ECDSA,
// back, and to ECDSA again, and counts what fails meanwhile: nothing may.
//
// A real kube-apiserver has its tokens signed by sa-controller-manager, whose keys are in a
// key ring. All the while clients request tokens and call the API with tokens old and
// new. The rotation is done by the commands that an operator types. The exit code is 0 only
// if every step was verified, no call has failed and no process was restarted.
//
// Nothing is left behind, also after Ctrl-C. No token is printed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
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
	out.Linef("A rotation of service account keys, in a cluster that is in use")
	out.Linef("")
	s := &story{Printer: out}
	if s.binary, err = devcluster.FindBinary(ctx); err != nil {
		return err
	}
	s.cluster, err = devcluster.Start(ctx, devcluster.Options{
		ExternalSigner: true,
		BeforeAPIServer: func(cluster *devcluster.Cluster) error {
			s.cluster = cluster
			return s.startManager(ctx)
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cluster.Stop()) }()
	if err := s.ready(ctx); err != nil {
		return err
	}
	out.Began("sa-controller-manager with a key ring, serving as the external signer", watch.Lap())
	version, err := s.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask kube-apiserver for its version: %w", err)
	}
	out.Began("kube-apiserver "+version.GitVersion+", which has no key of its own", 0)

	err = s.tell(ctx, steps())
	if s.load != nil {
		s.load.end()
		s.report()
	}
	if err == nil {
		err = s.judge(ctx)
	}
	if err != nil {
		return err
	}
	out.Linef("\nAll %d steps verified in %s.", len(steps()), watch.Total())
	return nil
}
