// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"

	"sa-controller-manager/signing"
)

// Issuer issues tokens. It is safe for concurrent use if its Signer is.
type Issuer struct {
	signer signing.Signer
	style  ClaimStyle

	// Clock is that of iat, nbf and exp, and TokenID returns a jti claim. Tests replace them before the first token.
	Clock   clock.PassiveClock
	TokenID func() string
}

// NewIssuer returns an Issuer that signs with signer. style applies to legacy tokens only.
func NewIssuer(signer signing.Signer, style ClaimStyle) *Issuer {
	return &Issuer{signer, style, clock.RealClock{}, func() string { return string(uuid.NewUUID()) }}
}

// Legacy issues the token of a token Secret. It does not expire. The error names what is missing, or
// wraps the error of the signer.
func (i *Issuer) Legacy(ctx context.Context, account Account, secretName string) (string, error) {
	if err := account.check(); err != nil {
		return "", fmt.Errorf("legacy token: %w", err)
	}
	if secretName == "" {
		return "", errors.New("legacy token: the secret name is empty")
	}
	claims := newLegacyClaims(account, secretName)
	switch i.style {
	case CompatClaims:
	case UniqueClaims:
		claims.IssuedAt = i.Clock.Now().Unix()
		claims.TokenID = i.TokenID()
	default:
		return "", fmt.Errorf("legacy token: unknown claim style %q", i.style)
	}
	return i.sign(ctx, signing.LegacyHeader, claims)
}

// BoundRequest is the content of a bound token. All fields are required.
type BoundRequest struct {
	Issuer    string // kube-apiserver's --service-account-issuer
	Account   Account
	Audiences []string
	Lifetime  time.Duration // rounded down to seconds
	// Skew is by how much kube-apiserver's clock may differ: the token is valid for as long before and afterwards.
	Skew time.Duration
}

// Bound issues a token like that of a TokenRequest which is bound to its account only.
//
// It needs an audience, because kube-apiserver accepts a token without one for every audience, like a
// legacy token. A probe by TokenReview uses a separate audience, so the token opens nothing else.
//
// The header has typ "JWT". kube-apiserver's own signer omits it, its KEP-740 client demands it, and
// its authenticator accepts both, so this form works with every signer.
func (i *Issuer) Bound(ctx context.Context, request BoundRequest) (string, error) {
	if err := request.check(); err != nil {
		return "", fmt.Errorf("bound token: %w", err)
	}
	return i.sign(ctx, signing.JWTHeader, boundClaims(request, i.Clock.Now(), i.TokenID()))
}

func (r BoundRequest) check() error {
	if r.Issuer == "" {
		return errors.New("the issuer is empty")
	}
	if r.Issuer == LegacyIssuer {
		return fmt.Errorf("the issuer is %s, which marks legacy tokens", LegacyIssuer)
	}
	if len(r.Audiences) == 0 || slices.Contains(r.Audiences, "") {
		return errors.New("an audience is missing or empty")
	}
	if r.Lifetime < time.Second {
		return errors.New("the lifetime is less than a second")
	}
	return r.Account.check()
}

// sign encodes and signs claims.
func (i *Issuer) sign(ctx context.Context, style signing.HeaderStyle, claims any) (string, error) {
	payload, err := encodePayload(claims)
	if err != nil {
		return "", err
	}
	header, signature, err := i.signer.Sign(ctx, style, payload)
	if err != nil {
		return "", fmt.Errorf("sign claims: %w", err)
	}
	if header == "" || signature == "" {
		return "", errors.New("sign claims: the signer returned an empty segment")
	}
	return header + "." + payload + "." + signature, nil
}
