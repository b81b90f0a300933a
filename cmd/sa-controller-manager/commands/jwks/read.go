// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package jwks

import (
	"context"
	"fmt"
	"os"
	"strings"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/published"
)

// read gets the JWKS at place, an https URL or the path of a file.
func read(ctx context.Context, place string, reader *published.Reader) ([]signing.PublishedKey, error) {
	if strings.Contains(place, "://") {
		answer, err := reader.JWKS(ctx, place)
		return answer.Keys, err
	}
	document, err := os.ReadFile(place)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	keys, err := signing.ParseJWKS(document)
	if err != nil {
		return nil, fmt.Errorf("read the keys of %s: %w", place, err)
	}
	return keys, nil
}

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
