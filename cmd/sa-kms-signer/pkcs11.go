// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"crypto"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
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

// logins has a mutex for each module, by path: one key of it is opened at a time. Two keys of one token with the same
// wrong PIN would be two attempts.
var logins sync.Map //nolint:gochecknoglobals // a module is initialized for the whole process

// login opens the token. The caller holds mu.
func (h *hsm) login() error {
	if h.token != nil {
		return nil
	}
	config := h.config
	var err error
	if config.Path, err = filepath.EvalSymlinks(config.Path); err != nil {
		return fmt.Errorf("module-path: %w: want the library that came with the HSM", err)
	}
	data, err := readFile(h.pinFile)
	config.Pin = strings.TrimSpace(string(data))
	if err == nil && config.Pin == "" { // it may be about to be written
		err = fmt.Errorf("%s is empty", h.pinFile)
	}
	if err != nil {
		return fmt.Errorf("pin-source: %w", err)
	}
	mutex, _ := logins.LoadOrStore(config.Path, &sync.Mutex{})
	login, _ := mutex.(*sync.Mutex)
	login.Lock()
	defer login.Unlock()
	token, err := identify(config)
	if err != nil {
		return fmt.Errorf("open token: %w: compare token or serial with pkcs11-tool --module LIBRARY --list-token-slots", err)
	}
	pin, err := pinOf(token, config.Pin)
	if err != nil {
		return err
	}
	if reason := refusedPINs.reason(pin); reason != "" {
		return h.refused(reason)
	}
	h.token, err = crypto11.Configure(&config)
	code, _ := errors.AsType[pkcs11.Error](err)
	reason := ""
	switch code {
	case pkcs11.CKR_PIN_INCORRECT, pkcs11.CKR_PIN_INVALID, pkcs11.CKR_PIN_LEN_RANGE:
		reason = "refuses the PIN"
	case pkcs11.CKR_PIN_LOCKED:
		reason = "has locked the PIN"
	}
	switch {
	case reason != "":
		refusedPINs.add(pin, reason)
		return h.refused(reason)
	case err != nil:
		return fmt.Errorf("open token: %w", err)
	}
	return nil
}

// identify returns what the module says which token it is: a URI may name one in several ways. The caller lets no
// other key of the module be opened meanwhile.
func identify(config crypto11.Config) (string, error) {
	module := pkcs11.New(config.Path)
	if module == nil {
		return "", errors.New("the library cannot be loaded")
	}
	defer module.Destroy()
	if err := module.Initialize(); err == nil {
		defer func() { _ = module.Finalize() }()
	} else if !errors.Is(err, pkcs11.Error(pkcs11.CKR_CRYPTOKI_ALREADY_INITIALIZED)) { // as it is while a key is open
		return "", err
	}
	slots, err := module.GetSlotList(true)
	if err != nil {
		return "", fmt.Errorf("list the slots: %w", err)
	}
	for _, slot := range slots {
		info, err := module.GetTokenInfo(slot)
		if err != nil {
			return "", err
		}
		if config.TokenLabel != "" && info.Label == config.TokenLabel || config.TokenSerial != "" && info.SerialNumber == config.TokenSerial {
			return strings.Join([]string{info.ManufacturerID, info.Model, info.SerialNumber, info.Label}, "\n"), nil
		}
	}
	return "", errors.New("could not find PKCS#11 token")
}

// refused is the same error after one attempt and without another one.
func (h *hsm) refused(reason string) error {
	return fmt.Errorf("the token %s in %s: it is not tried again until the file has another one, "+
		"which a security officer sets where it is locked", reason, h.pinFile)
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
		err = errors.New("found no key pair of that object and id: compare with pkcs11-tool --list-objects")
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

// pinOf identifies a PIN of a token. A PIN is short, so the hash is a slow one.
func pinOf(token, pin string) (string, error) {
	hash, err := pbkdf2.Key(sha256.New, pin, []byte(token), 1<<16, sha256.Size)
	return base64.RawStdEncoding.EncodeToString(hash), err
}

func (m *pinMemory) reason(pin string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reasons[pin]
}

// add remembers a PIN at once, before the process may be killed. An error is that of the next pass.
func (m *pinMemory) add(pin, reason string) {
	m.mu.Lock()
	if m.reasons == nil {
		m.reasons = map[string]string{}
	}
	m.reasons[pin], m.unsaved = reason, true
	m.mu.Unlock()
	_ = m.save()
}
