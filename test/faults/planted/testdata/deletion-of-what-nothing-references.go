// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/tokensecrets"
)

// planted deletes the auto-created Secrets that the account does not reference, if it has another one.
func (c *Controller) planted(ctx context.Context, account *corev1.ServiceAccount, secrets []*tokensecrets.TokenSecret) (
	bool, *tokensecrets.TokenSecret,
) {
	satisfied, adopt := planAccount(account, secrets, c.Auto, c.AutoExcluded)
	for _, secret := range secrets {
		if satisfied && secret.AutoCreated() && !tokensecrets.References(account, secret.Name) {
			_, _ = tokensecrets.Delete(ctx, c.Client, c.Recorder, secret, "Planted", "nothing references it")
		}
	}
	return satisfied, adopt
}
