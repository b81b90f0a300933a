// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"sa-controller-manager/internal/atomicfile"
)

// refusedPINs are the PINs that tokens have refused. None is tried again, because a few attempts lock a token, which
// other hosts may use as well.
//
//nolint:gochecknoglobals // a token is locked for the whole process
var refusedPINs pinMemory

// A pinMemory holds a hash of each refused PIN and the reason, in a file beside the sockets too: there it outlives a
// restart of the container. Its reader could read the files of the PINs as well.
type pinMemory struct {
	sync.Mutex // also lets one key log in at a time: two with the same wrong PIN would be two attempts

	path    string // "" remembers while the process runs
	reasons map[string]string
}

// load reads what earlier processes have been refused.
func (m *pinMemory) load(socketDir string) error {
	m.path = filepath.Join(socketDir, "refused-pins")
	data, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &m.reasons)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: it has the PINs that must not be tried again; remove it if all of them are right", m.path, err)
	}
	return nil
}

// pinOf identifies a PIN of a token. A PIN is short, so the hash is a slow one.
func pinOf(token, pin string) (string, error) {
	hash, err := pbkdf2.Key(sha256.New, pin, []byte(token), 1<<16, sha256.Size)
	return base64.RawStdEncoding.EncodeToString(hash), err
}

func (m *pinMemory) add(pin, reason string) error {
	if m.reasons == nil {
		m.reasons = map[string]string{}
	}
	m.reasons[pin] = reason
	if m.path == "" {
		return nil
	}
	data, err := json.Marshal(m.reasons)
	if err == nil {
		err = atomicfile.Write(m.path, data, 0o600)
	}
	return err
}
