// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/narrate"
)

const (
	// stepTimeout is ten times what a step takes, to allow for a loaded machine.
	stepTimeout = 60 * time.Second
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
	binary  devcluster.Binary
	cluster *devcluster.Cluster
	manager *devcluster.Manager
	client  kubernetes.Interface

	started   map[string]float64 // by process, in seconds since 1970
	load      *load
	witnesses []witness
	reviews   int // of witnesses, all accepted

	first, second, third key
}

// key is one of the key ring.
type key struct{ id, algorithm string }

func (k key) String() string { return k.algorithm + " " + k.id }

// ring is the file with the keys.
func (s *story) ring() string { return filepath.Join(s.cluster.Dir(), "keys", "ring.json") }

// startManager makes the key ring and starts what signs with it. kube-apiserver is not
// there yet and waits for this one.
func (s *story) startManager(ctx context.Context) error {
	ring, err := s.keys(ctx, "init", "--from-private-key-file="+s.cluster.SigningKeyFile())
	if err != nil {
		return err
	}
	if s.first, err = ring.key("active"); err != nil {
		return err
	}
	s.manager, err = s.binary.StartManager(s.cluster,
		"--service-account-private-key-file=", "--service-account-key-ring="+s.ring(),
		"--external-signer-socket="+s.cluster.SignerSocket(), "--external-signer-refresh-hint=1s",
		"--token-secrets=manual")
	return err
}

// ready returns when both processes are, and notes when they were started.
func (s *story) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, managerTimeout)
	defer cancel()
	if err := s.manager.Ready(ctx); err != nil {
		return fmt.Errorf("the manager does not get ready: %w\n%s", err, s.managerLog())
	}
	var err error
	if s.client, err = s.cluster.Client(); err != nil {
		return err
	}
	s.started, err = s.startTimes(ctx)
	return err
}

// startTimes tells one process from another that has taken its place.
func (s *story) startTimes(ctx context.Context) (map[string]float64, error) {
	const started = "process_start_time_seconds"
	server, err := s.cluster.APIServerMetrics(ctx)
	if err != nil {
		return nil, err
	}
	manager, err := s.manager.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	if !server.Has(started, nil) || !manager.Has(started, nil) {
		return nil, errors.New("no metric " + started)
	}
	return map[string]float64{"kube-apiserver": server.Sum(started, nil), "sa-controller-manager": manager.Sum(started, nil)}, nil
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

// runStep ends with a look at what every step has to leave as it is: the tokens of before,
// and the clients.
func (s *story) runStep(ctx context.Context, step step) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("not within %s", stepTimeout))
	defer cancel()
	if err := step.run(ctx, s); err != nil {
		return err
	}
	if err := s.load.more(ctx, callsPerStep); err != nil {
		return err
	}
	return s.reviewAll(ctx)
}

func (s *story) managerLog() string {
	return fmt.Sprintf("\nThe last lines of the manager's log:\n%s", s.manager.LogTail(logTail))
}
