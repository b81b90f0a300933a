// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"
	externaljwtv1alpha1 "k8s.io/externaljwt/apis/v1alpha1"
)

// terms are the two numbers that kube-apiserver is told, in whole seconds.
type terms struct {
	maxTokenExpiration time.Duration
	refreshHint        time.Duration
}

// register offers both versions of the service: kube-apiserver of 1.32 and 1.33 asks for v1alpha1.
func register(server *grpc.Server, s *service, t terms) {
	externaljwtv1.RegisterExternalJWTSignerServer(server, &v1{service: s, terms: t})
	externaljwtv1alpha1.RegisterExternalJWTSignerServer(server, &v1alpha1{service: s, terms: t})
}

// v1 adapts to v1.
//
// No key is ever excluded from OIDC discovery. The active one must not be, and the others have signed bound tokens before, or
// are about to: relying parties outside of the cluster need them as long as kube-apiserver does.
type v1 struct {
	externaljwtv1.UnsafeExternalJWTSignerServer

	service *service
	terms   terms
}

// Sign implements the service.
func (a *v1) Sign(ctx context.Context, request *externaljwtv1.SignJWTRequest) (*externaljwtv1.SignJWTResponse, error) {
	header, signature, err := a.service.sign(ctx, request.GetClaims())
	return &externaljwtv1.SignJWTResponse{Header: header, Signature: signature}, err
}

// FetchKeys implements the service.
func (a *v1) FetchKeys(context.Context, *externaljwtv1.FetchKeysRequest) (*externaljwtv1.FetchKeysResponse, error) {
	found, err := a.service.keys.get()
	if err != nil {
		return nil, err
	}
	response := &externaljwtv1.FetchKeysResponse{
		DataTimestamp:      timestamppb.New(found.taken),
		RefreshHintSeconds: int64(a.terms.refreshHint.Seconds()),
	}
	for _, key := range found.keys {
		response.Keys = append(response.Keys, &externaljwtv1.Key{KeyId: key.id, Key: key.der})
	}
	return response, nil
}

// Metadata implements the service.
func (a *v1) Metadata(context.Context, *externaljwtv1.MetadataRequest) (*externaljwtv1.MetadataResponse, error) {
	return &externaljwtv1.MetadataResponse{MaxTokenExpirationSeconds: int64(a.terms.maxTokenExpiration.Seconds())}, nil
}

// v1alpha1 adapts to v1alpha1, which has the same members.
type v1alpha1 struct {
	externaljwtv1alpha1.UnsafeExternalJWTSignerServer

	service *service
	terms   terms
}

// Sign implements the service.
func (a *v1alpha1) Sign(ctx context.Context, request *externaljwtv1alpha1.SignJWTRequest) (*externaljwtv1alpha1.SignJWTResponse, error) {
	header, signature, err := a.service.sign(ctx, request.GetClaims())
	return &externaljwtv1alpha1.SignJWTResponse{Header: header, Signature: signature}, err
}

// FetchKeys implements the service.
func (a *v1alpha1) FetchKeys(context.Context, *externaljwtv1alpha1.FetchKeysRequest) (*externaljwtv1alpha1.FetchKeysResponse, error) {
	found, err := a.service.keys.get()
	if err != nil {
		return nil, err
	}
	response := &externaljwtv1alpha1.FetchKeysResponse{
		DataTimestamp:      timestamppb.New(found.taken),
		RefreshHintSeconds: int64(a.terms.refreshHint.Seconds()),
	}
	for _, key := range found.keys {
		response.Keys = append(response.Keys, &externaljwtv1alpha1.Key{KeyId: key.id, Key: key.der})
	}
	return response, nil
}

// Metadata implements the service.
func (a *v1alpha1) Metadata(context.Context, *externaljwtv1alpha1.MetadataRequest) (*externaljwtv1alpha1.MetadataResponse, error) {
	return &externaljwtv1alpha1.MetadataResponse{MaxTokenExpirationSeconds: int64(a.terms.maxTokenExpiration.Seconds())}, nil
}
