// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
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
	config    crypto11.Config // without the PIN
	id, label []byte
	pinFile   string

	mu     sync.Mutex
	token  *crypto11.Context // nil: to be opened
	signer crypto.Signer     // nil: to be found
}

// refusedPINs are what tokens have refused, by library and token. A PIN is not tried again, also for a key
// file that is read again, because a few attempts lock the token.
var refusedPINs sync.Map

// logins lets one key log in at a time: two with the same wrong PIN would be two attempts.
var logins sync.Mutex

func newPKCS11(u *uri.URI) (backend, error) {
	h := &hsm{
		config: crypto11.Config{
			Path: u.Get("module-path"), TokenLabel: u.Get("token"), TokenSerial: u.Get("serial"),
			MaxSessions: maxPending + 2, PoolWaitTimeout: signTimeout,
		},
		id: []byte(u.Get("id")), label: []byte(u.Get("object")),
		pinFile: strings.TrimPrefix(strings.TrimPrefix(u.Get("pin-source"), "file:"), "//"),
	}
	switch {
	case (h.config.TokenLabel == "") == (h.config.TokenSerial == ""):
		return nil, errors.New("want either token or serial")
	case len(h.id) == 0 && len(h.label) == 0:
		return nil, errors.New("want object or id, which name the key")
	}
	return h, nil
}

// login opens the token. The caller holds mu.
func (h *hsm) login() error {
	if h.token != nil {
		return nil
	}
	if _, err := os.Stat(h.config.Path); err != nil {
		return fmt.Errorf("module-path: %w: want the library that came with the HSM", err)
	}
	data, err := os.ReadFile(h.pinFile)
	if err != nil {
		return fmt.Errorf("pin-source: %w", err)
	}
	config, token := h.config, [3]string{h.config.Path, h.config.TokenLabel, h.config.TokenSerial}
	config.Pin = strings.TrimSpace(string(data))
	logins.Lock()
	defer logins.Unlock()
	if refused, _ := refusedPINs.Load(token); refused == config.Pin {
		return fmt.Errorf("the token has refused the PIN in %s: it is not retried until the file changes", h.pinFile)
	}
	h.token, err = crypto11.Configure(&config)
	code, _ := errors.AsType[pkcs11.Error](err)
	switch {
	case code == pkcs11.CKR_PIN_INCORRECT, code == pkcs11.CKR_PIN_INVALID, code == pkcs11.CKR_PIN_LEN_RANGE:
		refusedPINs.Store(token, config.Pin)
		return fmt.Errorf("the token refuses the PIN in %s: correct the file, a few attempts lock the token", h.pinFile)
	case code == pkcs11.CKR_PIN_LOCKED:
		refusedPINs.Store(token, config.Pin)
		return errors.New("the token has locked the PIN: set another one as its security officer, and put that into the file")
	case err != nil:
		return fmt.Errorf("open token: %w: compare token or serial with pkcs11-tool --module LIBRARY --list-token-slots", err)
	}
	return nil
}

// key returns the one key pair that the URI names.
func (h *hsm) key() (crypto.Signer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.signer != nil {
		return h.signer, nil
	}
	err := h.login()
	var pairs []crypto11.Signer
	if err == nil {
		if pairs, err = h.token.FindKeyPairs(h.id, h.label); err != nil {
			err = fmt.Errorf("find the key: %w", err)
		}
	}
	switch {
	case err != nil:
	case len(pairs) == 0:
		err = errors.New("found no key pair of that object and id: compare with pkcs11-tool --list-objects, or create one")
	case len(pairs) > 1:
		err = fmt.Errorf("found %d key pairs: name one by both object and id", len(pairs))
	default:
		h.signer = pairs[0]
		return h.signer, nil
	}
	h.drop()
	return nil, err
}

func (h *hsm) find() (crypto.PublicKey, error) {
	signer, err := h.key()
	if err != nil {
		return nil, err
	}
	return signer.Public(), nil
}

// sign tries a second time, on the token opened again: a token that was away for a moment costs
// no signature.
func (h *hsm) sign(digest []byte, hash crypto.Hash) (signature []byte, err error) {
	for range 2 {
		var signer crypto.Signer
		if signer, err = h.key(); err != nil {
			return nil, err
		}
		if signature, err = signer.Sign(rand.Reader, digest, hash); err == nil {
			return signature, nil
		}
		if errors.Is(err, pkcs11.Error(pkcs11.CKR_KEY_FUNCTION_NOT_PERMITTED)) {
			return nil, fmt.Errorf("%w: want a key with CKA_SIGN", err)
		}
		h.mu.Lock()
		if h.signer == signer { // otherwise another call has done so
			h.drop()
		}
		h.mu.Unlock()
	}
	return nil, err
}

// drop makes the next call open the token again. Sessions in use are awaited aside. The caller holds mu.
func (h *hsm) drop() {
	if h.token != nil {
		go func(c *crypto11.Context) { _ = c.Close() }(h.token)
	}
	h.token, h.signer = nil, nil
}

func (h *hsm) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop()
}

func (h *hsm) create(kind string) error {
	if len(h.id) == 0 || len(h.label) == 0 {
		return errors.New("want object and id, to create a key")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.login(); err != nil {
		return err
	}
	for what, name := range map[string][2][]byte{"id": {h.id, nil}, "object": {nil, h.label}} {
		if pairs, err := h.token.FindKeyPairs(name[0], name[1]); err != nil || len(pairs) > 0 {
			return errors.Join(fmt.Errorf("the token has a key of that %s, or does not say", what), err)
		}
	}
	public, err := crypto11.NewAttributeSetWithIDAndLabel(h.id, h.label)
	if err != nil {
		return err
	}
	// By default of the library the private half is sensitive and cannot be extracted.
	if bits, isRSA := strings.CutPrefix(kind, "RSA-"); isRSA {
		length, _ := strconv.Atoi(bits)
		_, err = h.token.GenerateRSAKeyPairWithAttributes(public, public.Copy(), length)
	} else {
		curves := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}
		_, err = h.token.GenerateECDSAKeyPairWithAttributes(public, public.Copy(), curves[kind])
	}
	if err != nil {
		return fmt.Errorf("the token does not create the key: %w", err)
	}
	return nil
}
