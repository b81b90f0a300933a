// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"context"
	"time"

	"sa-controller-manager/signing"
)

// nobody is an account that does not exist, so that a token for it opens nothing.
var nobody = Account{Namespace: "kube-system", Name: "sa-controller-manager-signer-probe", UID: "00000000-0000-0000-0000-000000000000"}

// TrySigner has a signer sign a short bound token for an account that does not exist. Without an
// issuer a usual one stands in the claims.
func TrySigner(ctx context.Context, signer signing.Signer, issuer string) error {
	if issuer == "" {
		issuer = "https://kubernetes.default.svc"
	}
	_, err := NewIssuer(signer, CompatClaims).Bound(ctx,
		BoundRequest{Issuer: issuer, Account: nobody, Audiences: []string{issuer}, Lifetime: 10 * time.Minute})
	return err
}

// TryLegacySigner is TrySigner with the claims of a token Secret.
func TryLegacySigner(ctx context.Context, signer signing.Signer) error {
	_, err := NewIssuer(signer, CompatClaims).Legacy(ctx, nobody, nobody.Name)
	return err
}
