// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"sa-controller-manager/signing/rotation"
)

// StaleError says that the ring changed after the caller had looked at it.
type StaleError struct {
	Path      string
	Seen, Now int64
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("key directory %s changed meanwhile: generation %d was looked at and it has %d now; look again", e.Path, e.Seen, e.Now)
}

// Update changes the ring by a transition that needs no new file. generation is that of the state the caller has decided on; a
// ring that has changed since is a *StaleError. The files that the transition makes leftovers are gone when it returns.
func (d *Dir) Update(generation int64, transition func(rotation.State) (rotation.State, error)) (rotation.State, error) {
	return d.write(generation, func(w *writer) error {
		next, err := transition(w.state)
		if err != nil {
			return err
		}
		if err := w.commit(next); err != nil {
			return err
		}
		return w.clear()
	})
}

// Publish writes the file of a new key and begins a rotation to it.
func (d *Dir) Publish(generation int64, pair *Pair, now time.Time, policy rotation.Policy) (rotation.State, error) {
	return d.write(generation, func(w *writer) error {
		// Nothing is written for a transition that would be refused.
		if _, err := rotation.Publish(w.state, pair.key(), now, policy); err != nil {
			return err
		}
		announced := w.state.Clone()
		announced.Generation++
		announced.Leftovers = append(announced.Leftovers, pair.file())
		if err := w.commit(announced); err != nil {
			return err
		}
		if err := d.disk.replace(filepath.Join(d.path, pair.file()), pair.pem()); err != nil {
			return err
		}
		announced.Leftovers = slices.DeleteFunc(announced.Leftovers, func(name string) bool { return name == pair.file() })
		next, err := rotation.Publish(announced, pair.key(), now, policy)
		if err != nil {
			return err
		}
		return w.commit(next)
	})
}

// writer is one process at work on a directory that it has locked.
type writer struct {
	*Dir
	state rotation.State
}

// write locks the directory, clears up after a writer that did not end, and lets change do its work.
func (d *Dir) write(generation int64, change func(*writer) error) (rotation.State, error) {
	unlock, err := lock(d.path)
	if err != nil {
		return rotation.State{}, err
	}
	defer unlock()
	snapshot, err := d.Read()
	if err != nil {
		return rotation.State{}, err
	}
	if snapshot.State.Generation != generation {
		return rotation.State{}, &StaleError{Path: d.path, Seen: generation, Now: snapshot.State.Generation}
	}
	w := &writer{Dir: d, state: snapshot.State}
	if err := errors.Join(w.clear(), d.disk.remove(d.intentPath())); err != nil {
		return rotation.State{}, fmt.Errorf("clear up in key directory %s: %w", d.path, err)
	}
	if err := change(w); err != nil {
		return rotation.State{}, err
	}
	return w.state, nil
}

// commit makes next the state. It follows the present one by one generation.
func (w *writer) commit(next rotation.State) error {
	if next.Generation != w.state.Generation+1 {
		return &StaleError{Path: w.path, Seen: next.Generation - 1, Now: w.state.Generation}
	}
	data, err := rotation.Encode(next)
	if err != nil {
		return err
	}
	if err := w.disk.replace(w.statePath(), data); err != nil {
		return err
	}
	w.state = next
	return nil
}

// clear removes the leftovers and then forgets them.
func (w *writer) clear() error {
	if len(w.state.Leftovers) == 0 {
		return nil
	}
	for _, name := range w.state.Leftovers {
		path := filepath.Join(w.path, name)
		if err := errors.Join(w.disk.remove(path), w.disk.remove(temporaryName(path))); err != nil {
			return err
		}
	}
	next := w.state.Clone()
	next.Generation++
	next.Leftovers = nil
	return w.commit(next)
}
