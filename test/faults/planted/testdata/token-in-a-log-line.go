// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"context"

	"k8s.io/klog/v2"
)

// planted logs the body of a patch.
func planted(ctx context.Context, body []byte) []byte {
	klog.FromContext(ctx).Info("Patch", "body", string(body))
	return body
}
