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
	config.Pin = string(bytes.TrimSpace(pin))
	if err == nil && config.Pin == "" { // it may be about to be written
		err = fmt.Errorf("%s is empty", pinFile)
	}
	if err != nil {
		return nil, fmt.Errorf("pin-source: %w", err)
	}
	token, reason, err := logIn(config, filepath.Join(socketDir, "refused-pins"))
	switch {
	case reason != "":
		return nil, fmt.Errorf("the token %s in %s: it is not tried again until the file has another one, "+
			"which a security officer sets where it is locked", reason, pinFile)
	case err != nil:
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
	if err != nil {
		err = lost{err}
	}
	return signature, err
}

// logIn opens a token, or returns why it does not accept the PIN. A few attempts lock a token, which other hosts may use as
// well, so a PIN that was refused is never tried again: a file in the directory refused has the reason, and outlives a
// restart of the container. The file is there, and has room, before the attempt. It is locked meanwhile, because
// another process may have the same PIN. Its name is a hash, whose reader could read the files of the PINs as well.
func logIn(config *crypto11.Config, refused string) (token *crypto11.Context, reason string, err error) {
	identity, err := identify(config)
	if err != nil {
		return nil, "", fmt.Errorf("%w: compare module-path, token and serial with pkcs11-tool --module LIBRARY --list-token-slots", err)
	}
	hash, err := pbkdf2.Key(sha256.New, config.Pin, []byte(identity), 1<<16, sha256.Size) // a slow one: a PIN is short
	if err != nil {
		return nil, "", err
	}
	if err := os.MkdirAll(refused, 0o700); err != nil {
		return nil, "", err
	}
	file, err := os.OpenFile(filepath.Join(refused, base64.RawURLEncoding.EncodeToString(hash)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = file.Close() }()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, "", err
	}
	before, err := io.ReadAll(file)
	if reason = string(bytes.TrimSpace(before)); reason != "" || err != nil {
		return nil, reason, err
	}
	if _, err := file.WriteAt(bytes.Repeat([]byte(" "), maxReason), 0); err != nil {
		return nil, "", fmt.Errorf("no attempt is made that cannot be remembered: %w", err)
	}
	token, err = crypto11.Configure(config)
	switch code, _ := errors.AsType[pkcs11.Error](err); code {
	case pkcs11.CKR_PIN_INCORRECT, pkcs11.CKR_PIN_INVALID, pkcs11.CKR_PIN_LEN_RANGE:
		reason = "refuses the PIN"
	case pkcs11.CKR_PIN_LOCKED:
		reason = "has locked the PIN"
	default:
		return token, "", errors.Join(err, os.Remove(file.Name()))
	}
	_, err = file.WriteAt([]byte(reason), 0)
	return nil, reason, err
}

// maxReason is the room for a reason in bytes.
const maxReason = 64

// identify returns what the library says which token it is: a URI may name one in several ways.
func identify(config *crypto11.Config) (string, error) {
	module := pkcs11.New(config.Path)
	if module == nil {
		return "", fmt.Errorf("the library %s cannot be loaded", config.Path)
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
