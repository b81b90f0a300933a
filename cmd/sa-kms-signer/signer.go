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
	"sync"
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

// A key signs tokens with one key of a backend.
type key struct {
	name    string
	spec    keySpec
	backend backend
	public  signing.PublicKey
	keys    *signing.KeySet
	header  string
	pending chan struct{}

	mu     sync.Mutex
	signed time.Time // when the backend answered a probe last; zero: in doubt
	err    error     // why it does not sign; a probe alone takes it back
	probed time.Time // when the probe began that has no answer yet; zero: there is none
}

// openKey finds the key in its backend and has it sign a probe, so that a key that cannot sign, or
// that is another one than the backend shows, is refused before it is served. It takes as long as the backend does.
func openKey(name string, spec keySpec) (*key, error) {
	b, err := spec.backend(name)
	if err != nil {
		return nil, spec.failed(name, err)
	}
	k := &key{name: name, spec: spec, backend: b, pending: make(chan struct{}, maxPending)}
	if err := k.open(); err != nil {
		b.close()
		return nil, spec.failed(name, err)
	}
	return k, nil
}

func (k *key) open() error {
	found, err := k.backend.find()
	if err != nil {
		return err
	}
	if k.public, err = signing.NewPublicKey(found); err != nil {
		return err
	}
	if is := signing.KindOf(k.public); is != k.spec.Algorithm {
		return fmt.Errorf("the key is %s, and %s is asked for: name another key or its algorithm", is, k.spec.Algorithm)
	}
	header, err := json.Marshal(map[string]string{"alg": k.public.Algorithm, "kid": k.public.ID, "typ": "JWT"})
	if err != nil {
		return err
	}
	k.keys, k.header = signing.NewKeySet(k.public), base64.RawURLEncoding.EncodeToString(header)
	return k.probe()
}

// probe has the backend sign, and keeps when it did, or why not.
func (k *key) probe() error {
	signature, err := k.sign(probe)
	if err == nil {
		if err = k.public.Verify(k.header, probe, signature); err != nil {
			err = fmt.Errorf("it signs with another private half: %w", err)
		}
	}
	if err != nil {
		err = fmt.Errorf("the key does not sign: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err, k.probed = err, time.Time{}
	if err == nil {
		k.signed = time.Now()
	}
	return err
}

// proved returns why the key does not sign now. It waits for no answer: a proof that has expired, or that is in doubt,
// is asked for again aside, at most one at a time.
func (k *key) proved(atOnce bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	age := time.Since(k.signed)
	if k.probed.IsZero() && (age > proofAge || k.err != nil || atOnce && age > resync) {
		k.probed = time.Now()
		go func() { _ = k.probe() }() // it keeps its answer
	}
	switch {
	case !k.probed.IsZero() && time.Since(k.probed) > signTimeout:
		return k.spec.failed(k.name, fmt.Errorf("the backend has not answered since %s", k.probed.UTC().Format(time.TimeOnly)))
	case k.err != nil:
		return k.spec.failed(k.name, k.err)
	}
	return nil
}

// sign returns the signature of a token, and takes as long as the backend does.
func (k *key) sign(payload string) (string, error) {
	jws, err := cryptosigner.Opaque(opaque{k}).SignPayload([]byte(k.header+"."+payload), jose.SignatureAlgorithm(k.public.Algorithm))
	return base64.RawURLEncoding.EncodeToString(jws), err
}

// askFor does so for a caller, who gives up when ctx ends. The key is then asked for a proof.
func (k *key) askFor(ctx context.Context, payload string) (signature string, err error) {
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	defer func() {
		if ctx.Err() != nil {
			k.mu.Lock()
			k.signed = time.Time{}
			k.mu.Unlock()
		}
	}()
	select {
	case k.pending <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	answer := make(chan struct{})
	var signed string
	var failed error
	go func() {
		defer func() { <-k.pending }()
		if signed, failed = k.sign(payload); failed != nil {
			k.mu.Lock()
			k.err = fmt.Errorf("the key does not sign: %w", failed) // until a probe has an answer
			k.mu.Unlock()
		}
		close(answer)
	}()
	select {
	case <-answer:
		return signed, failed
	case <-ctx.Done():
		return "", ctx.Err()
	}
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
