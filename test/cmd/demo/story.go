// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/narrate"
)

const (
	// stepTimeout is a thousand times what a step takes, to allow for a loaded
	// machine.
	stepTimeout = 30 * time.Second
	// managerTimeout bounds how long the manager may take until it is ready.
	managerTimeout = 60 * time.Second
	// logTail is how many lines of the manager's log a failure shows.
	logTail = 30
)

// step is one verified part of the story.
type step struct {
	title  string
	expect string // what the step verifies, printed when it does not hold
	run    func(ctx context.Context, s *story) error
}

// story is what the steps share. A step finds in it what earlier ones left.
type story struct {
	*narrate.Printer
	cluster *devcluster.Cluster
	binary  devcluster.Binary
	manager *devcluster.Manager
	client  kubernetes.Interface

	webhookPort int // on which every manager with a webhook serves it

	account *corev1.ServiceAccount // the namespace's default account
	secret  *corev1.Secret         // the token Secret made for it

	untouched string // the Pod that was created while the webhook was taken out
}

func newStory(out *narrate.Printer, cluster *devcluster.Cluster, binary devcluster.Binary) (*story, error) {
	client, err := cluster.Client()
	if err != nil {
		return nil, err
	}
	port, err := devcluster.FreePort()
	if err != nil {
		return nil, err
	}
	return &story{Printer: out, cluster: cluster, binary: binary, client: client, webhookPort: port}, nil
}

// firstFlags are what the first manager is started with beyond the cluster's files
// and address.
func firstFlags() []string {
	return []string{"--token-secrets=auto", "--leader-elect=true"}
}

// startManager starts a manager and waits until it is ready.
func (s *story) startManager(ctx context.Context, flags []string) error {
	ctx, cancel := context.WithTimeout(ctx, managerTimeout)
	defer cancel()
	manager, err := s.binary.StartManager(s.cluster, flags...)
	if err != nil {
		return err
	}
	s.manager = manager
	if err := manager.Ready(ctx); err != nil {
		return fmt.Errorf("the manager does not get ready: %w\n%s", err, s.managerLog())
	}
	return nil
}

// tell runs the steps in order and stops at the first that cannot be verified.
func (s *story) tell(ctx context.Context, steps []step) error {
	for i, step := range steps {
		s.Title(i+1, step.title)
		begun := time.Now()
		if err := s.runStep(ctx, step); err != nil {
			return fmt.Errorf("step %d, %s\n%sexpected   %s\n%sobserved   %w\n%s",
				i+1, step.title, narrate.Indent, step.expect, narrate.Indent, err, s.managerLog())
		}
		s.Verified(time.Since(begun))
	}
	return nil
}

func (s *story) runStep(ctx context.Context, step step) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("not within %s", stepTimeout))
	defer cancel()
	return step.run(ctx, s)
}

func (s *story) managerLog() string {
	return fmt.Sprintf("\nThe last lines of the manager's log:\n%s", s.manager.LogTail(logTail))
}

func (s *story) awaitSecrets(ctx context.Context, check await.Check[*corev1.Secret]) error {
	_, err := await.Secrets(ctx, s.client, namespace, check)
	return err
}

func (s *story) awaitAccounts(ctx context.Context, check await.Check[*corev1.ServiceAccount]) error {
	_, err := await.ServiceAccounts(ctx, s.client, namespace, check)
	return err
}
