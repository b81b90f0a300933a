// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"bytes"
	"crypto"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ThalesGroup/crypto11"
	"github.com/miekg/pkcs11"
	"go.step.sm/crypto/kms/uri"
)

// hsm is a key of a pkcs11 URI (RFC 7512). A token that was removed or restarted takes its sessions and handles along,
// so after an error another process opens it.
type hsm struct{ crypto.Signer }

// openPKCS11 has what Sign and the library keep until the process ends.
func openPKCS11(u *uri.URI, socketDir string) (crypto.Signer, error) {
	config := &crypto11.Config{
		Path: u.Get("module-path"), TokenLabel: u.Get("token"), TokenSerial: u.Get("serial"),
		MaxSessions: maxPending + 2, PoolWaitTimeout: signTimeout,
	}
	id, label := []byte(u.Get("id")), []byte(u.Get("object"))
	switch {
	case (config.TokenLabel == "") == (config.TokenSerial == ""):
		return nil, errors.New("want either token or serial")
	case len(id) == 0 && len(label) == 0:
		return nil, errors.New("want object or id, which name the key")
	}
	pinFile := strings.TrimPrefix(strings.TrimPrefix(u.Get("pin-source"), "file:"), "//")
	pin, err := readFile(pinFile)
	if config.Pin = string(bytes.TrimSpace(pin)); err == nil && config.Pin == "" { // it may be about to be written
		err = fmt.Errorf("%s is empty", pinFile)
	}
	if err != nil {
		return nil, fmt.Errorf("pin-source: %w", err)
	}
	token, err := logIn(config, pinFile, filepath.Join(socketDir, "refused-pins"))
	if err != nil {
		return nil, fmt.Errorf("open token: %w", err)
	}
	pairs, err := token.FindKeyPairs(id, label)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find the key: %w", err)
	case len(pairs) == 0:
		return nil, errors.New("found no key pair of that object and id: compare with pkcs11-tool --list-objects")
	case len(pairs) > 1:
		return nil, fmt.Errorf("found %d key pairs: name one by both object and id", len(pairs))
	}
	return hsm{pairs[0]}, nil
}

// Sign implements crypto.Signer.
func (h hsm) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	signature, err := h.Signer.Sign(random, digest, opts)
	if errors.Is(err, pkcs11.Error(pkcs11.CKR_KEY_FUNCTION_NOT_PERMITTED)) {
		err = fmt.Errorf("%w: want a key with CKA_SIGN", err)
	}
	return signature, err
}

// refusals are the answers to a PIN that end with a locked token, on other hosts too, if the PIN is tried again.
var refusals = map[pkcs11.Error]string{
	pkcs11.CKR_PIN_INCORRECT: "refuses the PIN", pkcs11.CKR_PIN_INVALID: "refuses the PIN", pkcs11.CKR_PIN_LEN_RANGE: "refuses the PIN",
	pkcs11.CKR_PIN_LOCKED: "has locked the PIN",
}

// unanswered is what is remembered of a PIN while it is tried, by what was remembered before: a process may end before it
// hears of a refusal, which counts at the token. So a PIN is tried once more after that.
var unanswered = map[string]string{
	"":                            "has not answered to the PIN",
	"has not answered to the PIN": "has not answered twice, and may have refused the PIN",
}

// logIn opens a token with a PIN that it has not refused before. Of one that it has, a file in the directory refused has
// the reason, and outlives a restart of the container. The file is there, with room for the reason, before the attempt,
// and is locked meanwhile: another process may have the same PIN. Its name is a hash; who can read it could read the PIN.
func logIn(config *crypto11.Config, pinFile, refused string) (token *crypto11.Context, err error) {
	identity, err := identify(config)
	if err != nil {
		return nil, err
	}
	hash, err := pbkdf2.Key(sha256.New, config.Pin, []byte(identity), 1<<16, sha256.Size) // a slow one: a PIN is short
	if err != nil {
		return nil, err
	}
	_ = os.Mkdir(refused, 0o700)
	memory, err := os.OpenFile(filepath.Join(refused, base64.RawURLEncoding.EncodeToString(hash)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = memory.Close() }()
	// A lock of this process alone, not of a child that its library has forked.
	err = syscall.FcntlFlock(memory.Fd(), syscall.F_SETLKW, &syscall.Flock_t{Type: syscall.F_WRLCK})
	content, readErr := io.ReadAll(memory)
	if err := errors.Join(err, readErr); err != nil {
		return nil, err
	}
	reason := string(bytes.TrimSpace(content))
	if attempt := unanswered[reason]; attempt != "" {
		if _, err = memory.WriteAt(fmt.Appendf(nil, "%-64s", attempt), 0); err != nil {
			return nil, fmt.Errorf("no PIN is tried while that could not be remembered: %w", err)
		}
		token, err = crypto11.Configure(config)
		code, _ := errors.AsType[pkcs11.Error](err)
		if reason = refusals[code]; reason == "" {
			_, _ = memory.Truncate(0), os.Remove(memory.Name()) // another process may have opened it
			return token, err
		}
		_, err = memory.WriteAt(fmt.Appendf(nil, "%-64s", reason), 0)
	}
	return nil, errors.Join(fmt.Errorf("the token %s in %s: it is not tried again until the file has another one, which a security "+
		"officer sets where it is locked, or, if it is right, until %s is emptied", reason, pinFile, refused), err)
}

// identify returns what the library says which token it is: a URI may name one in several ways.
func identify(of *crypto11.Config) (string, error) {
	module := pkcs11.New(of.Path)
	if module == nil {
		return "", fmt.Errorf("module-path: %s cannot be loaded: want the library that came with the HSM", of.Path)
	}
	defer module.Destroy()
	if err := module.Initialize(); err != nil {
		return "", err
	}
	defer func() { _ = module.Finalize() }()
	slots, err := module.GetSlotList(true)
	if err != nil {
		return "", fmt.Errorf("list the slots: %w", err)
	}
	for _, slot := range slots {
		if info, err := module.GetTokenInfo(slot); err == nil && // as crypto11 has it
			(of.TokenLabel != "" && info.Label == of.TokenLabel || of.TokenSerial != "" && info.SerialNumber == of.TokenSerial) {
			_, err = module.OpenSession(slot, pkcs11.CKF_SERIAL_SESSION) // one that does not answer to that has not heard of a PIN
			return strings.Join([]string{info.ManufacturerID, info.Model, info.SerialNumber, info.Label}, "\n"), err
		}
	}
	return "", errors.New("could not find PKCS#11 token: compare token or serial with pkcs11-tool --module LIBRARY --list-token-slots")
}
