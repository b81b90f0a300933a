// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	externaljwtv1 "k8s.io/externaljwt/apis/v1"

	"sa-controller-manager/signing"
)

// Pinned is what a signer says of itself.
type Pinned struct {
	Key signing.PublicKey
	// MaxTokenExpiration is the longest life of a token that it signs.
	MaxTokenExpiration time.Duration
}

// Pin asks a signer for its one key. Whether it signs with it is for the caller to try, with a
// signing.RemoteKey of the answer.
func (c *Client) Pin(ctx context.Context, name string) (Pinned, error) {
	pinned, err := c.pin(ctx, name)
	if err != nil {
		return Pinned{}, fmt.Errorf("kep740:%s: %w", name, err)
	}
	return pinned, nil
}

func (c *Client) pin(ctx context.Context, name string) (Pinned, error) {
	s, err := c.signer(name)
	if err != nil {
		return Pinned{}, err
	}
	listed, err := s.fetch(ctx)
	if err != nil {
		return Pinned{}, err
	}
	if n := len(listed.GetKeys()); n != 1 {
		return Pinned{}, fmt.Errorf("it lists %d keys, want the one that it signs with: one socket is one key", n)
	}
	if listed.GetKeys()[0].GetExcludeFromOidcDiscovery() {
		return Pinned{}, errors.New("it excludes its key from OIDC discovery, and so relying parties would refuse its tokens")
	}
	key, err := publicKey(listed.GetKeys()[0])
	if err != nil {
		return Pinned{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	metadata, err := s.client.Metadata(bounded, &externaljwtv1.MetadataRequest{})
	if err != nil {
		return Pinned{}, fmt.Errorf("ask for its metadata: %w", s.reason(err))
	}
	longest := min(metadata.GetMaxTokenExpirationSeconds(), int64((1<<63-1)/time.Second))
	return Pinned{Key: key, MaxTokenExpiration: time.Duration(longest) * time.Second}, nil
}

// fetch asks for the keys.
func (s *signer) fetch(ctx context.Context) (*externaljwtv1.FetchKeysResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	listed, err := s.client.FetchKeys(ctx, &externaljwtv1.FetchKeysRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask for its keys: %w", s.reason(err))
	}
	return listed, nil
}

// publicKey returns a listed key under the ID that the signer has given it.
func publicKey(listed *externaljwtv1.Key) (signing.PublicKey, error) {
	if err := signing.CheckKeyID(listed.GetKeyId()); err != nil {
		return signing.PublicKey{}, err
	}
	raw, err := x509.ParsePKIXPublicKey(listed.GetKey())
	if err != nil {
		return signing.PublicKey{}, fmt.Errorf("key %s is not a PKIX public key", listed.GetKeyId())
	}
	key, err := signing.NewPublicKey(raw)
	if err != nil {
		return signing.PublicKey{}, fmt.Errorf("key %s: %w", listed.GetKeyId(), err)
	}
	key.ID = listed.GetKeyId()
	return key, nil
}
