// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"
	"sa-controller-manager/signing"
)

const (
	// signTimeout bounds a signing request including queueing; the client gives up then too.
	signTimeout = 2 * time.Second

	// probe is a payload that stands for no account: {}.
	probe = "e30"

	// maxPending bounds the signatures that are asked of one backend at a time, also those that
	// the caller has given up: a PKCS#11 module cannot be interrupted.
	maxPending = 16
)

// A key signs tokens with one key of a backend. It is a signing.Signer and a signing.KeySource.
type key struct {
	backend backend
	public  signing.PublicKey
	keys    *signing.KeySet
	header  string
	pending chan struct{}
}

// openKey finds the key in its backend and has it sign a probe, so that a key that cannot sign, or
// that is another one than the backend shows, is refused before it is served.
func openKey(name string, spec keySpec) (*key, error) {
	b, err := spec.backend(name)
	if err != nil {
		return nil, spec.failed(name, err)
	}
	k, err := probed(b, spec.Algorithm)
	if err != nil {
		b.close()
		return nil, spec.failed(name, err)
	}
	return k, nil
}

func probed(b backend, kind string) (*key, error) {
	found, err := b.find()
	if err != nil {
		return nil, err
	}
	public, err := signing.NewPublicKey(found)
	if err != nil {
		return nil, err
	}
	if is := signing.KindOf(public); is != kind {
		return nil, fmt.Errorf("the key is %s, and %s is asked for: name another key or its algorithm", is, kind)
	}
	header, err := json.Marshal(map[string]string{"alg": public.Algorithm, "kid": public.ID, "typ": "JWT"})
	if err != nil {
		return nil, err
	}
	k := &key{
		backend: b, public: public, keys: signing.NewKeySet(public),
		header: base64.RawURLEncoding.EncodeToString(header), pending: make(chan struct{}, maxPending),
	}
	_, signature, err := k.Sign(context.Background(), signing.JWTHeader, probe)
	if err != nil {
		return nil, fmt.Errorf("the key does not sign: %w", err)
	}
	if err := public.Verify(k.header, probe, signature); err != nil {
		return nil, fmt.Errorf("the key signs with another private half: %w", err)
	}
	return k, nil
}

// Keys implements signing.KeySource.
func (k *key) Keys() *signing.KeySet { return k.keys }

// Sign implements signing.Signer, with the header of KEP-740 in every style. The client verifies the
// signature with the public half that it has pinned.
func (k *key) Sign(ctx context.Context, _ signing.HeaderStyle, payload string) (header, signature string, err error) {
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	select {
	case k.pending <- struct{}{}:
	case <-ctx.Done():
		return "", "", ctx.Err()
	}
	defer func() { <-k.pending }()
	jws, err := cryptosigner.Opaque(opaque{k}).SignPayload([]byte(k.header+"."+payload), jose.SignatureAlgorithm(k.public.Algorithm))
	if err != nil {
		return "", "", err
	}
	return k.header, base64.RawURLEncoding.EncodeToString(jws), nil
}

// opaque is a crypto.Signer.
type opaque struct{ *key }

func (o opaque) Public() crypto.PublicKey { return o.public.Key }

func (o opaque) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return o.backend.sign(digest, opts.HashFunc())
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
