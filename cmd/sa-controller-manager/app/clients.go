// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
)

// clients are separate because leader election must not wait behind other requests.
type clients struct {
	main     kubernetes.Interface
	election kubernetes.Interface
}

// newClients gives the election client no more time for a request than a renewal
// has, so that a hanging connection costs a try and not the lease. Neither logs warnings: a
// policy may quote in one the Secret that was written.
func newClients(config *rest.Config, renewDeadline time.Duration) (clients, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	main, err := kubernetes.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("build the API client: %w", err)
	}
	electionConfig := rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	electionConfig.Timeout = renewDeadline / 2
	election, err := kubernetes.NewForConfig(electionConfig)
	if err != nil {
		return clients{}, fmt.Errorf("build the leader election client: %w", err)
	}
	return clients{main: main, election: election}, nil
}

const (
	// A kube-apiserver that has come back waits for our admission webhook.
	firstContactBackoff = 500 * time.Millisecond
	maxContactBackoff   = 2 * time.Second
)

// awaitAPIServer asks until the API server answers and reports whether that came
// before ctx ended. It logs one line a try, where the informers would log several
// for each thing that they watch.
func awaitAPIServer(ctx context.Context, client kubernetes.Interface) bool {
	return until(ctx, "The API server does not answer yet", func() error {
		version, err := cli.ServerVersion(ctx, client)
		if err == nil {
			klog.FromContext(ctx).Info("Connected to the API server", "version", version)
		}
		return err
	})
}

// until tries until that succeeds, and reports whether it did before ctx ended. It logs one line
// a failed try.
func until(ctx context.Context, complaint string, try func() error) bool {
	for backoff := firstContactBackoff; ; backoff = min(2*backoff, maxContactBackoff) {
		err := try()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		klog.FromContext(ctx).Error(err, complaint, "retryIn", backoff)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(backoff):
		}
	}
}
