// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	// A kube-apiserver that has come back waits for our admission webhook.
	firstContactBackoff = 500 * time.Millisecond
	maxContactBackoff   = 2 * time.Second

	// contactTimeout bounds one try, so that a connection that hangs is a line in
	// the log too.
	contactTimeout = 5 * time.Second
)

// awaitAPIServer asks until the API server answers and tells whether that came
// before ctx ended. It logs one line a try, where the informers would log several
// for each thing that they watch.
func awaitAPIServer(ctx context.Context, client kubernetes.Interface) bool {
	logger := klog.FromContext(ctx)
	for backoff := firstContactBackoff; ; backoff = min(2*backoff, maxContactBackoff) {
		version, err := serverVersion(ctx, client)
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

// serverVersion asks for /version, which is answered as soon as anything is. The
// typed call for it takes no context.
func serverVersion(ctx context.Context, client kubernetes.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	answer := client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx)
	// Raw leaves the words of a refusal undecoded.
	if err := answer.Error(); err != nil {
		return "", err
	}
	body, err := answer.Raw()
	if err != nil {
		return "", err
	}
	var info version.Info
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("read /version: %w", err)
	}
	return info.GitVersion, nil
}
