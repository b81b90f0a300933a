// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/apiservers"
)

// Clients are those of one API server.
type Clients struct {
	Client kubernetes.Interface
	// Metadata reads objects without what users put into them.
	Metadata metadata.Interface
	// Election is for leader election alone, which must not wait for other requests.
	Election kubernetes.Interface
	// Dial returns a client of one kube-apiserver at its own address.
	Dial func(url string) (kubernetes.Interface, error)
}

// newClients gives the election client a request timeout shorter than the renew deadline, so that
// a connection that hangs costs one try and not the Lease.
func newClients(config *rest.Config, renewDeadline time.Duration) (Clients, error) {
	main, err := kubernetes.NewForConfig(config)
	if err != nil {
		return Clients{}, fmt.Errorf("build the API client: %w", err)
	}
	onlyMetadata, err := metadata.NewForConfig(config)
	if err != nil {
		return Clients{}, fmt.Errorf("build the client of metadata: %w", err)
	}
	electionConfig := rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	electionConfig.Timeout = renewDeadline / 2
	election, err := kubernetes.NewForConfig(electionConfig)
	if err != nil {
		return Clients{}, fmt.Errorf("build the leader election client: %w", err)
	}
	dial := func(url string) (kubernetes.Interface, error) {
		one := rest.CopyConfig(config)
		one.Host = url
		return kubernetes.NewForConfig(one)
	}
	return Clients{Client: main, Metadata: onlyMetadata, Election: election, Dial: dial}, nil
}

const (
	// Short, because a kube-apiserver that has restarted needs our admission webhook.
	firstContactBackoff = 500 * time.Millisecond
	maxContactBackoff   = 2 * time.Second
)

// awaitAPIServer retries until the API server answers, and reports whether it did before ctx
// ended. It logs one line a try, where the informers would log several for each resource.
func awaitAPIServer(ctx context.Context, client kubernetes.Interface) bool {
	return until(ctx, "Failed to connect to kube-apiserver", func() error {
		version, err := apiservers.Version(ctx, client)
		if err == nil {
			klog.FromContext(ctx).Info("Connected to kube-apiserver", "version", version)
		}
		return err
	})
}

// until calls try until it succeeds, and reports whether it did before ctx ended. It logs message
// after each failed try.
func until(ctx context.Context, message string, try func() error) bool {
	for backoff := firstContactBackoff; ; backoff = min(2*backoff, maxContactBackoff) {
		err := try()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		klog.FromContext(ctx).Error(err, message, "retryIn", backoff)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(backoff):
		}
	}
}
