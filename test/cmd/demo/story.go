// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/test/devcluster"
)

const (
	// stepTimeout is at least ten times what a step takes, to allow for a loaded machine.
	stepTimeout = 60 * time.Second
	// readyTimeout bounds how long the manager may take until it is ready.
	readyTimeout = 60 * time.Second
	// logTail is how many lines of the manager's log a failure shows.
	logTail = 30
)

// step is one verified part of a demonstration.
type step struct {
	title  string
	expect string // what the step verifies, printed if it does not hold
	run    func(ctx context.Context) error
}

// story is what both demonstrations share.
type story struct {
	*printer

	binary  devcluster.Binary
	cluster *devcluster.Cluster
	manager *devcluster.Manager
	client  kubernetes.Interface
	steps   int // verified so far
}

// startCluster starts etcd and kube-apiserver. main stops them.
func (s *story) startCluster(ctx context.Context, options devcluster.Options) (err error) {
	if s.cluster, err = devcluster.Start(ctx, options); err != nil {
		return err
	}
	if s.client, err = s.cluster.Client(); err != nil {
		return err
	}
	version, err := s.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("get the version of kube-apiserver: %w", err)
	}
	s.Ready("etcd and kube-apiserver " + version.GitVersion)
	return nil
}

// startManager starts a manager and does not wait for it.
func (s *story) startManager(flags ...string) (err error) {
	s.manager, err = s.binary.StartManager(s.cluster, flags...)
	return err
}

// runManager starts a manager and waits until it is ready.
func (s *story) runManager(ctx context.Context, flags ...string) error {
	if err := s.startManager(flags...); err != nil {
		return err
	}
	return s.managerReady(ctx)
}

func (s *story) managerReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := s.manager.Ready(ctx); err != nil {
		return fmt.Errorf("the manager does not become ready: %w\n%s", err, s.managerLog())
	}
	return nil
}

// show runs the steps in order and stops at the first one that does not hold.
func (s *story) show(ctx context.Context, steps []step) error {
	for _, step := range steps {
		s.Title(s.steps+1, step.title)
		begun := time.Now()
		if err := runStep(ctx, step); err != nil {
			return fmt.Errorf("step %d, %s\n%sexpected   %s\n%sobserved   %w\n%s",
				s.steps+1, step.title, indent, step.expect, indent, err, s.managerLog())
		}
		s.steps++
		s.Verified(time.Since(begun))
	}
	return nil
}

func runStep(ctx context.Context, step step) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("not within %s", stepTimeout))
	defer cancel()
	return step.run(ctx)
}

func (s *story) managerLog() string {
	return fmt.Sprintf("\nThe last lines of the manager's log:\n%s", s.manager.LogTail(logTail))
}

// refusedError is the message of a command that ended with exit code 1.
type refusedError struct{ message string }

func (e *refusedError) Error() string { return e.message }

// command runs the product's command line as a user does, with further flags that are not printed.
func (s *story) command(ctx context.Context, words string, flags ...string) (stdout []byte, err error) {
	s.Notef("command", "sa-controller-manager %s", words)
	return s.output(ctx, words, flags...)
}

// output returns what a command prints. It returns a refusedError if the exit code is 1.
func (s *story) output(ctx context.Context, words string, flags ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, s.binary.Path, append(strings.Fields(words), flags...)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stdout, err := command.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		return stdout, &refusedError{strings.TrimSpace(strings.TrimPrefix(stderr.String(), "Error: "))}
	}
	if err != nil {
		return stdout, fmt.Errorf("sa-controller-manager %s: %w\n%s", words, err, stderr.Bytes())
	}
	return stdout, nil
}

// orNil returns an error that can be printed in place of nil.
func orNil(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}
