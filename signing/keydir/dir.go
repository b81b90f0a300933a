// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

import (
	"bytes"
	"fmt"
	"path/filepath"

	"sa-controller-manager/signing/reload"
	"sa-controller-manager/signing/rotation"
)

// Dir is a key directory. It holds nothing open.
type Dir struct {
	path string
	disk disk
}

// At names the directory at path, which need not exist yet.
func At(path string) *Dir { return &Dir{path: path} }

// Path is the path given to At.
func (d *Dir) Path() string { return d.path }

func (d *Dir) statePath() string { return filepath.Join(d.path, stateName) }

// Read returns the ring as it is now.
func (d *Dir) Read() (*Snapshot, error) {
	data, err := readBundle(d.statePath())
	if err != nil {
		return nil, err
	}
	snapshot, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.statePath(), err)
	}
	return snapshot, nil
}

// Writable is nil, or a *ReadOnlyError if the kind of directory says already that writers will refuse it.
func (d *Dir) Writable() error { return writable(d.path) }

// Follow reads the ring and prepares to follow it (package reload). A change that takes the ring back to an earlier generation
// is refused for as long as this process lives: it is an old copy, and what it does not know of may have signed.
func (d *Dir) Follow(options reload.Options) (*reload.File[*Snapshot], error) {
	var last *Snapshot // parse is never called twice at a time
	return reload.OpenWith(d.statePath(), readBundle, func(data []byte) (*Snapshot, error) {
		snapshot, err := parse(data)
		if err != nil {
			return nil, err
		}
		if err := follows(last, snapshot); err != nil {
			return nil, err
		}
		last = snapshot
		return snapshot, nil
	}, options)
}

// follows refuses a state that cannot have come after the last one.
func follows(last, next *Snapshot) error {
	if last == nil {
		return nil
	}
	was, is := last.State.Generation, next.State.Generation
	if is < was {
		return fmt.Errorf("generation %d is older than %d, which is in use: was an old copy put back? Bring the newer one, or restart to go back to this one", is, was)
	}
	if is == was && !sameState(last.State, next.State) {
		return fmt.Errorf("generation %d is in use with another content: the ring was changed in two places. Keep one of them, rotate there, and bring the result here", is)
	}
	return nil
}

func sameState(a, b rotation.State) bool {
	first, err := rotation.Encode(a)
	if err != nil {
		return false
	}
	second, err := rotation.Encode(b)
	return err == nil && bytes.Equal(first, second)
}
