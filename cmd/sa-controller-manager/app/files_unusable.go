// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"k8s.io/klog/v2"

	"sa-controller-manager/signing"
)

// verifyKeys are what a verification key file holds.
type verifyKeys struct {
	keys []signing.PublicKey
	// unusable is what is wrong with a key that is passed over, nil if none is.
	unusable error
}

// parseVerifyKeys takes both from one reading: a file may change at any time.
func parseVerifyKeys(data []byte) (verifyKeys, error) {
	keys, err := signing.ParsePublicKeys(data)
	if err != nil {
		return verifyKeys{}, err
	}
	return verifyKeys{keys: keys, unusable: signing.UnusableKey(data)}, nil
}

// tellUnusable says which key of a file is passed over. kube-apiserver may verify with it, and does not learn of it from us.
func tellUnusable(ctx context.Context, path string, found verifyKeys) {
	if found.unusable != nil {
		klog.FromContext(ctx).Info("Passed over a verification key that is not accepted here", "file", path, "cause", found.unusable.Error())
	}
}
