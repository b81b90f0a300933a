// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"k8s.io/klog/v2"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
)

// tellUnusable says which key of a verification key file is passed over. kube-apiserver may verify with it, and does not learn of it
// from us. A file that cannot be read now is another matter, and is told elsewhere.
func tellUnusable(ctx context.Context, path string) {
	data, err := reload.ReadFile(path)
	if err != nil {
		return
	}
	if unusable := signing.UnusableKey(data); unusable != nil {
		klog.FromContext(ctx).Info("Passed over a verification key that is not accepted here", "file", path, "cause", unusable.Error())
	}
}
