// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

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
	mu      sync.Mutex
	path    string // "" remembers while the process runs
	reasons map[string]string
	unsaved bool
}

// save writes what the file lacks.
func (m *pinMemory) save() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.unsaved || m.path == "" {
		return nil
	}
	data, err := json.Marshal(m.reasons)
	if err == nil {
		err = writeFile(m.path, data)
	}
	m.unsaved = err != nil
	return err
}

// writeFile replaces a file. Its error is the same each time.
func writeFile(path string, data []byte) error {
	err := atomicfile.Write(path, data, 0o600)
	if code, is := errors.AsType[syscall.Errno](err); is { // without the name of a temporary file
		return fmt.Errorf("write %s: %w", path, code)
	}
	return err
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
