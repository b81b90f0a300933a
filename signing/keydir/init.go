// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
	"sa-controller-manager/signing/rotation"
)

// intentName is a file that names the files which Init is about to write, for as long as there is no state to name them.
const intentName = ".init"

func (d *Dir) intentPath() string { return filepath.Join(d.path, intentName) }

// Init makes a key ring in a directory that is empty or not there: pair signs, and retired keys verify.
func (d *Dir) Init(pair *Pair, retired []signing.PublicKey, now time.Time, policy rotation.Policy) (rotation.State, error) {
	files, state, err := plan(pair, retired, now, policy)
	if err != nil {
		return rotation.State{}, err
	}
	if err := d.disk.step("make directory", func() error { return os.MkdirAll(d.path, directoryMode) }); err != nil {
		return rotation.State{}, err
	}
	unlock, err := lock(d.path)
	if err != nil {
		return rotation.State{}, err
	}
	defer unlock()
	if err := d.makeEmpty(); err != nil {
		return rotation.State{}, err
	}
	if err := d.fill(files); err != nil {
		return rotation.State{}, err
	}
	w := &writer{Dir: d}
	if err := w.commit(state); err != nil {
		return rotation.State{}, err
	}
	return w.state, d.disk.remove(d.intentPath())
}

// plan is the new state and the content of its key files.
func plan(pair *Pair, retired []signing.PublicKey, now time.Time, policy rotation.Policy) (map[string][]byte, rotation.State, error) {
	files := map[string][]byte{pair.file(): pair.pem()}
	var keys []rotation.Key
	for _, public := range signing.NewKeySet(retired...).All() {
		if public.ID == pair.Public().ID {
			continue // what is given to verify with often holds the signing key too
		}
		data, err := encodePublic(public)
		if err != nil {
			return nil, rotation.State{}, err
		}
		key := keyOf(public)
		key.VerifyOnly = true
		keys = append(keys, key)
		files[key.File] = data
	}
	state, err := rotation.New(pair.key(), keys, now, policy)
	return files, state, err
}

func (d *Dir) fill(files map[string][]byte) error {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	intent, err := json.Marshal(names)
	if err != nil {
		return err
	}
	if err := d.disk.replace(d.intentPath(), intent); err != nil {
		return err
	}
	for _, name := range names {
		if err := d.disk.replace(filepath.Join(d.path, name), files[name]); err != nil {
			return err
		}
	}
	return nil
}

// makeEmpty removes what an Init left that did not end, and refuses a directory with anything else in it: it may be a ring
// whose state was lost, and its keys with it if they were written over.
func (d *Dir) makeEmpty() error {
	if _, err := os.Lstat(d.statePath()); err == nil {
		return fmt.Errorf("%s holds a key ring already: nothing is to be done, or choose another directory", d.path)
	}
	intended, err := d.intended()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if name == lockName || name == intentName {
			continue
		}
		path := filepath.Join(d.path, name)
		if !slices.ContainsFunc(intended, func(file string) bool {
			return name == file || path == temporaryName(filepath.Join(d.path, file))
		}) {
			return fmt.Errorf("%s is not empty: %s is in it; make the key ring in a directory of its own", d.path, name)
		}
		if err := d.disk.remove(path); err != nil {
			return err
		}
	}
	return nil
}

// intended are the files that an Init may have written which did not end.
func (d *Dir) intended() ([]string, error) {
	own := []string{intentName, stateName}
	data, err := reload.ReadFile(d.intentPath())
	if errors.Is(err, fs.ErrNotExist) {
		return own, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		return nil, fmt.Errorf("%s: %w", d.intentPath(), err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, filePrefix) && name == filepath.Base(name) {
			own = append(own, name)
		}
	}
	return own, nil
}
