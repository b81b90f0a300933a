// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/time/rate"

	"sa-controller-manager/signing"
)

// errTooMany says that a signature would not be made before the caller stops waiting for it.
var errTooMany = errors.New("more signatures are asked for than may be made")

// service is what both versions of the API are adapters to. Its errors are told to the caller by outcomeOf.
type service struct {
	signer signing.Signer
	check  func(payload string) error
	keys   keyCache
	rate   *rate.Limiter
	// turns holds one entry for each signature that is being made.
	turns chan struct{}
}

// sign answers Sign. The order is that of cost: what is refused has cost neither a turn among the signatures nor a signature.
func (s *service) sign(ctx context.Context, payload string) (header, signature string, err error) {
	if err := s.rate.Wait(ctx); err != nil {
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
		return "", "", errTooMany
	}
	if err := s.check(payload); err != nil {
		return "", "", err
	}
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return "", "", ctx.Err()
	}
	header, signature, err = s.signer.Sign(ctx, signing.JWTHeader, payload)
	if err != nil {
		return "", "", fmt.Errorf("sign: %w", err)
	}
	return header, signature, nil
}
