// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/elliptic"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/ThalesGroup/crypto11"
	"github.com/miekg/pkcs11"
	"go.step.sm/crypto/kms/uri"
)

// hsm is the backend of pkcs11 URIs (RFC 7512). A token that was removed or restarted takes its
// sessions and handles along: after an error the token is opened again, at the next signature.
//
// The process must never fork: a PKCS#11 module does not survive it.
type hsm struct {
	config    crypto11.Config
	id, label []byte
	pinFile   string
	algorithm string

	mu     sync.Mutex
	open   *crypto11.Context // nil: to be opened
	signer crypto.Signer
	// refusedPIN is the digest of a PIN that the token has refused. It is not tried again, because
	// a few attempts lock the token.
	refusedPIN [sha256.Size]byte
}

func newPKCS11(u *uri.URI, algorithm string) (backend, error) {
	if err := unknownAttributes(u, "token", "serial", "object", "id", "module-path", "pin-source"); err != nil {
		return nil, err
	}
	h := &hsm{
		config: crypto11.Config{
			Path: u.Get("module-path"), TokenLabel: u.Get("token"), TokenSerial: u.Get("serial"),
			MaxSessions: maxPending + 2, PoolWaitTimeout: signTimeout,
		},
		id: []byte(u.Get("id")), label: []byte(u.Get("object")), algorithm: algorithm,
		pinFile: strings.TrimPrefix(strings.TrimPrefix(u.Get("pin-source"), "file:"), "//"),
	}
	switch {
	case h.config.Path == "":
		return nil, errors.New("want module-path, the path of the PKCS#11 library")
	case (h.config.TokenLabel == "") == (h.config.TokenSerial == ""):
		return nil, errors.New("want either token or serial")
	case len(h.id) == 0 && len(h.label) == 0:
		return nil, errors.New("want object or id, which name the key")
	case h.pinFile == "":
		return nil, errors.New("want pin-source, the path of a file with the PIN")
	}
	return h, nil
}

// context returns the open token, and logs in if need be. The caller holds mu.
func (h *hsm) context() (*crypto11.Context, error) {
	if h.open != nil {
		return h.open, nil
	}
	if _, err := os.Stat(h.config.Path); err != nil {
		return nil, fmt.Errorf("module-path: %w: want the library that came with the HSM", err)
	}
	pin, err := os.ReadFile(h.pinFile)
	if err != nil {
		return nil, fmt.Errorf("pin-source: %w", err)
	}
	pin = bytes.TrimSpace(pin)
	digest := sha256.Sum256(pin)
	if digest == h.refusedPIN {
		return nil, fmt.Errorf("the token has refused the PIN in %s, which is not tried again before the file changes: correct it", h.pinFile)
	}
	config := h.config
	config.Pin = string(pin)
	opened, err := crypto11.Configure(&config)
	if code := pkcs11.Error(0); errors.As(err, &code) {
		switch code {
		case pkcs11.CKR_PIN_INCORRECT, pkcs11.CKR_PIN_INVALID, pkcs11.CKR_PIN_LEN_RANGE:
			h.refusedPIN = digest
			return nil, fmt.Errorf("the token refuses the PIN in %s: correct the file, a few attempts lock the token", h.pinFile)
		case pkcs11.CKR_PIN_LOCKED:
			h.refusedPIN = digest
			return nil, errors.New("the token has locked the PIN: set another one as its security officer, and put that into the file")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open token: %w: compare token or serial with pkcs11-tool --module LIBRARY --list-token-slots", err)
	}
	h.open = opened
	return opened, nil
}

// key returns the one key pair that the URI names.
func (h *hsm) key() (crypto.Signer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.signer != nil {
		return h.signer, nil
	}
	opened, err := h.context()
	if err != nil {
		return nil, err
	}
	pairs, err := opened.FindKeyPairs(h.id, h.label)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find the key: %w", err)
	case len(pairs) == 0:
		return nil, errors.New("found no key pair of that object and id: compare with pkcs11-tool --list-objects, or create one")
	case len(pairs) > 1:
		return nil, fmt.Errorf("found %d key pairs: name one by both object and id", len(pairs))
	}
	h.signer = pairs[0]
	return h.signer, nil
}

func (h *hsm) find(context.Context) (crypto.PublicKey, error) {
	signer, err := h.key()
	if err != nil {
		return nil, err
	}
	return signer.Public(), nil
}

// sign tries a second time, on the token opened again: a token that was away for a moment costs
// no signature.
func (h *hsm) sign(_ context.Context, input []byte) ([]byte, error) {
	var err error
	for range 2 {
		var signer crypto.Signer
		if signer, err = h.key(); err != nil {
			h.reopen(nil)
			return nil, err
		}
		var signature []byte
		if signature, err = jws(signer, h.algorithm, input); err == nil {
			return signature, nil
		}
		if errors.Is(err, pkcs11.Error(pkcs11.CKR_KEY_FUNCTION_NOT_PERMITTED)) {
			return nil, fmt.Errorf("%w: want a key with CKA_SIGN", err)
		}
		h.reopen(signer)
	}
	return nil, err
}

// reopen makes the next signature open the token again, unless that has been done since failed was
// given out. Sessions in use are awaited aside.
func (h *hsm) reopen(failed crypto.Signer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == nil || h.signer != failed {
		return
	}
	go func(c *crypto11.Context) { _ = c.Close() }(h.open)
	h.open, h.signer = nil, nil
}

func (h *hsm) create(context.Context) error {
	if len(h.id) == 0 || len(h.label) == 0 {
		return errors.New("want object and id, to create a key")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	opened, err := h.context()
	if err != nil {
		return err
	}
	for what, name := range map[string][2][]byte{"id": {h.id, nil}, "object": {nil, h.label}} {
		pairs, err := opened.FindKeyPairs(name[0], name[1])
		if err != nil {
			return fmt.Errorf("find keys: %w", err)
		}
		if len(pairs) > 0 {
			return fmt.Errorf("the token has a key of that %s", what)
		}
	}
	public, err := crypto11.NewAttributeSetWithIDAndLabel(h.id, h.label)
	if err != nil {
		return err
	}
	// By default of the library the private half is sensitive and cannot be extracted.
	switch bits := bitsOf[h.algorithm]; {
	case isEC(h.algorithm):
		_, err = opened.GenerateECDSAKeyPairWithAttributes(public, public.Copy(), map[int]elliptic.Curve{
			256: elliptic.P256(), 384: elliptic.P384(), 521: elliptic.P521(),
		}[bits])
	default:
		_, err = opened.GenerateRSAKeyPairWithAttributes(public, public.Copy(), bits)
	}
	if err != nil {
		return fmt.Errorf("the token does not create the key: %w", err)
	}
	return nil
}

func (h *hsm) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open != nil {
		_ = h.open.Close()
		h.open, h.signer = nil, nil
	}
}
