// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservers

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
)

// contactTimeout bounds the request of Version, so that a connection that hangs is an error too.
const contactTimeout = 5 * time.Second

// Version asks for /version, which is answered as soon as anything is. The typed call for it takes
// no context.
func Version(ctx context.Context, client kubernetes.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	body, err := Getter(client)(ctx, "/version")
	if err != nil {
		return "", err
	}
	var info version.Info
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("read /version: %w", err)
	}
	return info.GitVersion, nil
}

// Getter returns a function that reads a path of the API server.
func Getter(client kubernetes.Interface) func(context.Context, string) ([]byte, error) {
	return func(ctx context.Context, path string) ([]byte, error) {
		answer := client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx)
		// Raw would leave the message of a refusal undecoded.
		if err := answer.Error(); err != nil {
			return nil, err
		}
		return answer.Raw()
	}
}
