// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
	"sa-controller-manager/signing/rotation"
)

// stateName is the file that makes a directory a key ring.
const stateName = "ring.json"

// maxReadings bounds how often a directory is read anew because it changed meanwhile.
const maxReadings = 3

// bundle is the content of a directory as one value: the state and the files of its keys. It exists so that a change of any
// file is a change of the whole.
type bundle struct {
	State []byte            `json:"state"`
	Files map[string][]byte `json:"files"`
}

// readBundle reads the ring whose state is at path and returns an encoded bundle. What belongs together is read together: if
// the state changed while its files were read, everything is read anew.
func readBundle(path string) ([]byte, error) {
	for attempt := 1; ; attempt++ {
		b, err := readOnce(path)
		if err == nil {
			return json.Marshal(b)
		}
		again, stateErr := reload.ReadFile(path)
		if attempt == maxReadings || (stateErr == nil && b != nil && bytes.Equal(again, b.State)) {
			return nil, err
		}
	}
}

// readOnce returns the state it saw even if a file of it is missing.
func readOnce(path string) (*bundle, error) {
	// All files come from where the state really is: the volume of a mounted Secret is a link, which moves.
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notRing(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	b := &bundle{Files: map[string][]byte{}}
	if b.State, err = reload.ReadFile(target); err != nil {
		return nil, err
	}
	state, err := rotation.Decode(b.State)
	if err != nil {
		return b, nil //nolint:nilerr // parse says it, of a content that can be told from another one
	}
	for _, key := range state.Keys {
		if b.Files[key.File], err = reload.ReadFile(filepath.Join(filepath.Dir(target), key.File)); err != nil {
			return b, fmt.Errorf("%s key %s: %w", key.Role, key.ID, err)
		}
	}
	after, err := reload.ReadFile(target)
	if err != nil {
		return b, err
	}
	if !bytes.Equal(after, b.State) {
		return b, fmt.Errorf("%s changes all the time", path)
	}
	return b, nil
}

func notRing(path string) error {
	return fmt.Errorf("%s holds no key ring: there is no %s in it (sa-controller-manager keys init makes one)", filepath.Dir(path), filepath.Base(path))
}

// PrivateKey reads the private half of a key of the ring, which a snapshot has of the active and of the next key only.
func (d *Dir) PrivateKey(key rotation.Key) (*signing.PrivateKey, error) {
	data, err := reload.ReadFile(filepath.Join(d.path, key.File))
	if err != nil {
		return nil, fmt.Errorf("%s key %s: %w", key.Role, key.ID, err)
	}
	public, private, err := parseKey(key, data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("file %s of %s key %s: %w", key.File, key.Role, key.ID, err)
	case private == nil:
		return nil, fmt.Errorf("file %s of %s key %s holds the public half alone", key.File, key.Role, key.ID)
	case public.ID != key.ID:
		return nil, fmt.Errorf("file %s of %s key %s holds another key: %s", key.File, key.Role, key.ID, public.ID)
	}
	return private, nil
}
