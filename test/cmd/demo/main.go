// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo starts a real control plane and sa-controller-manager beside it and shows, in
// numbered steps, what the manager does:
//
//	demo              accounts, token Secrets and Pods
//	demo rotation     a rotation of signing keys while clients request and use tokens
//	demo hsm          keys that move from a file to an HSM, a transit engine, a foreign signer, and back
//	demo signer       rotations beside a stock kube-controller-manager, where nothing is taken over
//	demo federation   published keys, which a second cluster verifies with while they rotate
//
// Every step is verified against the API. The exit code is 0 only if all steps hold.
//
// The output states what was observed. Tokens are decoded and printed without their signatures,
// so that the output can be shared. The command removes everything it has created, also after
// Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/must"
)

func main() { os.Exit(run(strings.Join(os.Args[1:], " "))) }

func run(name string) int {
	demonstrate, ok := map[string]func(context.Context, *story){
		"": showTokens, "rotation": showRotation, "hsm": showHSM, "federation": showFederation, "signer": showSigner,
	}[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "demo: unknown argument %q, must be \"rotation\", \"hsm\", \"federation\", \"signer\" or absent\n", name)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first Ctrl-C stops the demonstration in order. The second one kills it.
	context.AfterFunc(ctx, stop)

	s := &story{out: os.Stdout, begun: time.Now()}
	err := must.Catch(func() { demonstrate(ctx, s) })
	for _, end := range slices.Backward(s.ends) {
		err = errors.Join(err, end())
	}
	switch {
	case ctx.Err() != nil:
		s.linef("\nInterrupted.")
		return 130 // what a shell reports for a process that Ctrl-C ended
	case err != nil:
		s.linef("\nFAILED: %s", err)
		return 1
	}
	s.linef("\nAll %d steps verified in %s.", s.steps, rounded(time.Since(s.begun)))
	return 0
}

const (
	// stepTimeout is at least ten times what a step takes, to allow for a loaded machine.
	stepTimeout = 120 * time.Second
	// logTail is how many lines of the manager's log a failure shows.
	logTail = 30
	// indent precedes every line below the title of a step.
	indent = "     "
)

// step is one verified part of a demonstration.
type step struct {
	title string // what it verifies
	run   func(ctx context.Context)
}

// story narrates a demonstration as plain text: numbered steps, and what was observed.
type story struct {
	out   io.Writer
	begun time.Time
	steps int // verified so far

	binary  devcluster.Binary
	cluster *devcluster.Cluster // the first
	manager *devcluster.Manager
	client  kubernetes.Interface
	ends    []func() error // called in the end, the last one first
	clients *clients       // from the moment at which tokens are requested and presented all the time
}

// linef prints a line as it is.
func (s *story) linef(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// ready prints that a component is ready.
func (s *story) ready(format string, args ...any) {
	s.linef("  + %s: ready after %s", fmt.Sprintf(format, args...), rounded(time.Since(s.begun)))
}

// notef prints one observation: its first line after the label, further lines below it.
func (s *story) notef(label, format string, args ...any) {
	for line := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		s.linef("%s", strings.TrimRight(fmt.Sprintf("%s%-10s %s", indent, label, line), " "))
		label = ""
	}
}

// rounded keeps a duration to about three digits.
func rounded(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// show runs the steps in order and stops at the first one that does not hold. The clients, if there are any, must make
// progress in each.
func (s *story) show(ctx context.Context, steps []step) {
	for _, step := range steps {
		s.linef("\n%2d.  %s", s.steps+1, step.title)
		begun := time.Now()
		if err := s.do(ctx, step); err != nil {
			must.Do(fmt.Errorf("step %d, %s: %w\n\nThe last lines of the manager's log:\n%s", s.steps+1, step.title, err,
				s.manager.LogTail(logTail)))
		}
		s.steps++
		s.linef("%sverified in %s", indent, rounded(time.Since(begun)))
	}
}

func (s *story) do(ctx context.Context, step step) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("not within %s", stepTimeout))
	defer cancel()
	err := must.Catch(func() {
		step.run(ctx)
		if s.clients != nil {
			s.clients.goOn(ctx)
		}
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err) // what the step says is that it was ended
	}
	return err
}

// startCluster starts etcd and kube-apiserver.
func (s *story) startCluster(ctx context.Context, options devcluster.Options) {
	s.cluster = must.Get(devcluster.Start(ctx, options))
	s.ends = append(s.ends, s.cluster.Stop)
	s.client = must.Get(s.cluster.Client())
	s.ready("etcd and kube-apiserver %s", must.Get(s.client.Discovery().ServerVersion()).GitVersion)
}

// managerReady waits for it.
func (s *story) managerReady(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := s.manager.Ready(ctx); err != nil {
		must.Do(fmt.Errorf("the manager does not become ready: %w\n%s", err, s.manager.LogTail(logTail)))
	}
}

// refused is an error unless err has the reason. It prints the refusal.
func (s *story) refused(err error, reason string) error {
	if err == nil {
		return errors.New("not refused")
	}
	if !strings.Contains(err.Error(), reason) {
		return fmt.Errorf("no refusal because %q, but: %w", reason, err)
	}
	_, message, _ := strings.Cut(err.Error(), "Error: ")
	s.notef("refused", "%s", strings.ReplaceAll(message, ": ", ":\n"))
	return nil
}
