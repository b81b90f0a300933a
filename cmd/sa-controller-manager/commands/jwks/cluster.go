// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package jwks

import (
	"context"
	"fmt"

	"sa-controller-manager/signing"
)

// OfCluster reads the keys that kube-apiserver publishes. get asks it for a path.
func OfCluster(ctx context.Context, get func(ctx context.Context, path string) ([]byte, error)) ([]signing.PublishedKey, error) {
	document, err := get(ctx, signing.JWKSPath)
	if err != nil {
		return nil, fmt.Errorf("read kube-apiserver's keys at %s: %w", signing.JWKSPath, err)
	}
	keys, err := signing.ParseJWKS(document)
	if err != nil {
		return nil, fmt.Errorf("read kube-apiserver's keys at %s: %w", signing.JWKSPath, err)
	}
	return keys, nil
}
