// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// Pin takes the key of another process once it has signed both kinds of tokens as it must, for an
// account that does not exist.
func (o *Operator) Pin(ctx context.Context, signer string, boundOnly bool) (*signing.PrivateKey, error) {
	name, err := signing.ParseSigner(signer)
	if err != nil {
		return nil, err
	}
	pinned, err := o.Signers.Pin(ctx, name)
	if err != nil {
		return nil, err
	}
	if longest := o.Policy.TokenLifetime; pinned.MaxTokenExpiration < longest {
		return nil, fmt.Errorf("%s signs tokens for at most %s, and kube-apiserver asks for up to %s: "+
			"raise its maximum, or give the longest life of your tokens with --longest-token-lifetime",
			signer, pinned.MaxTokenExpiration, longest)
	}
	key := signing.RemoteKey(name, pinned.Key, o.Signers.Sign)
	if err := tokens.TrySigner(ctx, key, o.Issuer); err != nil {
		return nil, fmt.Errorf("try a bound token: %w", err)
	}
	err = tokens.TryLegacySigner(ctx, key)
	if refused, ok := errors.AsType[*signing.UnavailableError](err); ok && refused.Refused {
		if boundOnly {
			return key, nil
		}
		return nil, fmt.Errorf("%s refuses the tokens of Secrets, which the token controller signs: "+
			"where it does not run, give --bound-tokens-only", signer)
	}
	if err != nil {
		return nil, fmt.Errorf("try a token of a Secret: %w", err)
	}
	return key, nil
}
