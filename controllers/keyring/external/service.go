// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"

	"sa-controller-manager/signing"
)

// errTooMany rejects a call whose signature would not be ready before the caller times out.
var errTooMany = errors.New("more signatures are asked for than may be made")

// service implements the API. outcomeOf turns its errors into answers.
//
// No key is ever excluded from OIDC discovery. The active one must not be, and the others have
// signed bound tokens before, or are about to: relying parties outside of the cluster need them as
// long as kube-apiserver does.
type service struct {
	externaljwtv1.UnsafeExternalJWTSignerServer

	signer signing.Signer
	check  func(payload string) error
	keys   keyCache
	rate   *rate.Limiter
	// maxTokenExpiration is announced to kube-apiserver, in whole seconds.
	maxTokenExpiration time.Duration
}

// Sign implements the service.
func (s *service) Sign(ctx context.Context, request *externaljwtv1.SignJWTRequest) (*externaljwtv1.SignJWTResponse, error) {
	header, signature, err := s.sign(ctx, request.GetClaims())
	return &externaljwtv1.SignJWTResponse{Header: header, Signature: signature}, err
}

// FetchKeys implements the service.
func (s *service) FetchKeys(context.Context, *externaljwtv1.FetchKeysRequest) (*externaljwtv1.FetchKeysResponse, error) {
	return s.keys.get()
}

// Metadata implements the service.
func (s *service) Metadata(context.Context, *externaljwtv1.MetadataRequest) (*externaljwtv1.MetadataResponse, error) {
	return &externaljwtv1.MetadataResponse{MaxTokenExpirationSeconds: int64(s.maxTokenExpiration.Seconds())}, nil
}

// sign implements Sign. The cheapest checks come first, so a refused call costs no signature.
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
	header, signature, err = s.signer.Sign(ctx, signing.JWTHeader, payload)
	if err != nil {
		return "", "", fmt.Errorf("sign: %w", err)
	}
	return header, signature, nil
}
