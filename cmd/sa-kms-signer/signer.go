// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"sa-controller-manager/signing"
)

const (
	// openTimeout bounds how long a backend may take to show its key.
	openTimeout = 10 * time.Second

	// signTimeout bounds one signature. sa-controller-manager waits for 2 s.
	signTimeout = 2 * time.Second

	// maxPending bounds the signatures that are asked of one backend at a time, also those that
	// the caller has given up and a PKCS#11 module has not.
	maxPending = 16
)

// A key signs tokens with one key of a backend. It is a signing.Signer and a signing.KeySource.
type key struct {
	name    string
	public  signing.PublicKey
	header  string
	backend backend
	pending chan struct{}
}

// openKey finds the key in its backend and has it sign a probe, so that a key that cannot sign, or
// that is another one than the backend shows, is refused before it is served.
func openKey(ctx context.Context, name string, spec keySpec) (*key, error) {
	b, err := spec.backend()
	if err != nil {
		return nil, spec.failed(name, err)
	}
	k, err := probed(ctx, name, spec.Algorithm, b)
	if err != nil {
		b.close()
		return nil, spec.failed(name, err)
	}
	return k, nil
}

func probed(ctx context.Context, name, algorithm string, b backend) (*key, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	found, err := b.find(ctx)
	if err != nil {
		return nil, err
	}
	if err := fits(found, algorithm); err != nil {
		return nil, err
	}
	public, err := signing.NewPublicKey(found)
	if err != nil {
		return nil, err
	}
	header, err := json.Marshal(map[string]string{"alg": public.Algorithm, "kid": public.ID, "typ": "JWT"})
	if err != nil {
		return nil, err
	}
	k := &key{
		name: name, public: public, backend: b,
		header: base64.RawURLEncoding.EncodeToString(header), pending: make(chan struct{}, maxPending),
	}
	if _, _, err := k.Sign(ctx, signing.JWTHeader, base64.RawURLEncoding.EncodeToString([]byte(`{}`))); err != nil {
		return nil, fmt.Errorf("the key does not sign: %w", err)
	}
	return k, nil
}

// Keys implements signing.KeySource.
func (k *key) Keys() *signing.KeySet { return signing.NewKeySet(k.public) }

// Sign implements signing.Signer, with the header of KEP-740 in every style. The signature is
// verified with the public half that was found first: another key behind the same name signs
// nothing that leaves this process.
func (k *key) Sign(ctx context.Context, _ signing.HeaderStyle, payload string) (header, signature string, err error) {
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	select {
	case k.pending <- struct{}{}:
	case <-ctx.Done():
		return "", "", ctx.Err()
	}
	type answer struct {
		signature []byte
		err       error
	}
	answers := make(chan answer, 1)
	input := k.header + "." + payload
	go func() {
		defer func() { <-k.pending }()
		signature, err := k.backend.sign(ctx, []byte(input))
		answers <- answer{signature, err}
	}()
	select {
	case <-ctx.Done():
		return "", "", ctx.Err()
	case a := <-answers:
		if a.err != nil {
			return "", "", a.err
		}
		if err := jwt.GetSigningMethod(k.public.Algorithm).Verify(input, a.signature, k.public.Key); err != nil {
			return "", "", errors.New("the backend has signed with another key than the one that it showed at first")
		}
		return k.header, base64.RawURLEncoding.EncodeToString(a.signature), nil
	}
}

// refusal is the error of checkPayload. Its text holds nothing of the payload.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) Reason() string  { return "payload" }
func (refusal) Malformed() bool { return true }

// checkPayload accepts the claims of a token: a JSON object. What the claims may say is decided by
// sa-controller-manager, which alone may connect.
func checkPayload(payload string) error {
	data, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || base64.RawURLEncoding.EncodeToString(data) != payload { // it skips line breaks
		return refusal("the payload is not a base64url segment")
	}
	var claims map[string]json.RawMessage
	if err := json.Unmarshal(data, &claims); err != nil || claims == nil {
		return refusal("the payload is not a JSON object")
	}
	return nil
}
