// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
)

const (
	// A kube-apiserver that has come back waits for our admission webhook.
	firstContactBackoff = 500 * time.Millisecond
	maxContactBackoff   = 2 * time.Second
)

// awaitAPIServer asks until the API server answers and tells whether that came
// before ctx ended. It logs one line a try, where the informers would log several
// for each thing that they watch.
func awaitAPIServer(ctx context.Context, client kubernetes.Interface) bool {
	logger := klog.FromContext(ctx)
	for backoff := firstContactBackoff; ; backoff = min(2*backoff, maxContactBackoff) {
		version, err := cli.ServerVersion(ctx, client)
		if err == nil {
			logger.Info("Connected to the API server", "version", version)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		logger.Error(err, "The API server does not answer yet", "retryIn", backoff)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(backoff):
		}
	}
}
