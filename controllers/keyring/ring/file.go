// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
)

const (
	directoryMode = 0o700
	fileMode      = 0o600
	lockSuffix    = ".lock"
	// previousSuffix is of the file as it was before the last change.
	previousSuffix = ".previous"
)

// File is a key ring in a file. It keeps no file open.
type File struct {
	path string
	sign signing.RemoteSign
	dry  *State // what would be in it, of a dry run
}

// At names the file at path, which need not exist yet.
func At(path string) *File { return &File{path: path} }

// Signing returns the same file, whose keys in other processes sign with sign. Without it those keys
// only verify.
func (f *File) Signing(sign signing.RemoteSign) *File { return &File{path: f.path, sign: sign} }

// DryRun returns the same file, whose changes are checked and stay in memory.
func (f *File) DryRun() *File { return &File{path: f.path, sign: f.sign, dry: &State{}} }

// IsDryRun reports whether the file is one of DryRun.
func (f *File) IsDryRun() bool { return f.dry != nil }

// Path is the path given to At.
func (f *File) Path() string { return f.path }

// Read returns the ring as it is now.
func (f *File) Read() (State, error) {
	if f.dry != nil && len(f.dry.Keys) > 0 {
		return *f.dry, nil
	}
	data, err := reload.ReadFile(f.path)
	if err != nil {
		return State{}, withHint(err)
	}
	state, err := decode(data, f.sign)
	if err != nil {
		return State{}, fmt.Errorf("%s: %w", f.path, err)
	}
	return state, nil
}

// withHint names the commands that bring a missing ring.
func withHint(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no key ring: %w (keys import brings that of another host, keys init makes the first one)", err)
	}
	return err
}

// Init makes a key ring where there is none: active signs, next comes after it unless that is nil, and
// retired keys verify.
func (f *File) Init(active *signing.PrivateKey, retired []signing.PublicKey, next *Key, now time.Time) error {
	var keys []Key
	for _, public := range signing.NewKeySet(retired...).All() {
		if public.Digest() != active.Public().Digest() { // what is given to verify with often holds the signing key too
			keys = append(keys, Key{Key: public.As(signing.Retired)})
		}
	}
	state, err := New(KeyOf(active), keys, next, now)
	if err != nil {
		return err
	}
	err = f.Update(0, func(State) (State, error) { return state, nil })
	if errors.Is(err, errStale) {
		return fmt.Errorf("%s is there already: nothing to do, or choose another file", f.path)
	}
	return err
}

// readOnly is the error for a ring file that can be read and not be rotated where it is. why is such as "its file system is".
func (f *File) readOnly(why string) error {
	return fmt.Errorf("key ring %s is read-only here (%s): run the command on the file that it is a copy of, and bring the result here",
		f.path, why)
}

// Writable returns an error for a file that is a link, as in the volumes that the kubelet
// keeps: it would put its own content back. nil does not promise that a write succeeds.
func (f *File) Writable() error {
	for _, path := range []string{filepath.Join(filepath.Dir(f.path), "..data"), f.path} {
		info, err := os.Lstat(path)
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return f.readOnly(filepath.Base(path) + " is a link, as in a mounted Secret")
		}
	}
	return nil
}

var errStale = errors.New("run the command again")

// Update changes the ring by a transition, of the zero State where there is none. generation is that of the state on
// which the caller has decided; it is an error if the ring has changed since. What is revoked stays so.
func (f *File) Update(generation int64, transition func(State) (State, error)) error {
	return f.locked(func() error {
		state, err := f.Read()
		if err != nil && (generation != 0 || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
		if state.Generation != generation {
			return fmt.Errorf("key ring %s changed meanwhile: generation %d was read and it has %d now; %w",
				f.path, generation, state.Generation, errStale)
		}
		next, err := transition(state)
		if err != nil {
			return err
		}
		next.Revoked = Union(next.Revoked, state.Revoked)
		return f.write(next)
	})
}

// locked calls change while it holds the writers' lock.
func (f *File) locked(change func() error) error {
	if err := f.Writable(); err != nil {
		return err
	}
	if f.dry != nil {
		return change()
	}
	if err := os.MkdirAll(filepath.Dir(f.path), directoryMode); err != nil {
		return err
	}
	unlock, err := f.lock()
	if err == nil {
		defer unlock()
		if err = atomicfile.RemoveLeftovers(f.path); err == nil {
			err = change()
		}
	}
	if errors.Is(err, syscall.EROFS) {
		return f.readOnly("its file system is")
	}
	return err
}

// lock takes the writers' lock, which is on an empty file beside the ring: each change replaces the
// ring file, and NFS cannot lock a directory. The kernel releases the lock when the process ends, also
// when it is killed.
func (f *File) lock() (unlock func(), err error) {
	file, err := os.OpenFile(f.path+lockSuffix, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err = atomicfile.GiveAway(file, f.path); err == nil {
		err = atomicfile.Lock(file)
	}
	if errors.Is(err, atomicfile.ErrLocked) {
		err = fmt.Errorf("key ring %s is being changed by another process: try again when it has ended", f.path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}

func (f *File) write(state State) error {
	data, err := encode(state)
	if err != nil {
		return err
	}
	if f.dry != nil {
		*f.dry = state
		return nil
	}
	// atomicfile keeps the mode of an existing file, and that of a copy may be too wide.
	if err := os.Chmod(f.path, fileMode); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f.keepPrevious(state); err != nil {
		return err
	}
	return atomicfile.Write(f.path, data, fileMode)
}

// keepPrevious copies the present file, unless the copy that is there is of a newer ring: then an older file was put
// back, and that copy may be the newest one that there is.
func (f *File) keepPrevious(next State) error {
	before, unreadable := At(f.path).Read()
	if unreadable != nil || before.Version() == next.Version() {
		return nil //nolint:nilerr // there is no ring to keep
	}
	data, err := encode(before)
	if err != nil || f.PutBack(before) {
		return err
	}
	// Not through a link, and not with the mode of a copy that others may read.
	path := f.path + previousSuffix
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.Write(path, data, fileMode)
}

// PutBack reports whether state, which is in the file, is older than the copy from before the last change.
func (f *File) PutBack(state State) bool {
	previous, err := At(f.path + previousSuffix).Read()
	return err == nil && !state.Knows(previous.Version()) && previous.Knows(state.Version())
}

// follows returns an error unless the history of next contains last.
func follows(last *State, next State) error {
	switch {
	case last == nil || next.Knows(last.Version()):
		return nil
	case last.Knows(next.Version()):
		return fmt.Errorf("generation %d is older than %d, which is in use: was an old copy put back? Bring the newer one "+
			"(keys import); keys list says what to do if there is none", next.Generation, last.Generation)
	}
	return fmt.Errorf("generation %d is forked from %d, which is in use: the ring was changed in two places, "+
		"and a key that has signed here may be missing there. \"keys import --join-fork\" in one of the places "+
		"brings the other one's keys in as retired ones; then bring the result to the other place", next.Generation, last.Generation)
}

// Store is the signing.Store of a ring file.
type Store struct {
	file    *reload.File[State]
	sign    signing.RemoteSign
	desired atomic.Pointer[Desired] // nil before the first call of Apply

	calls   sync.Mutex // held during calls of changed and refused
	changed func(*signing.Ring)
}

var _ signing.Store = (*Store)(nil)

// Open reads the ring and prepares to follow it (package reload). As long as the store lives, it
// refuses a change back to an earlier generation: an old copy may lack a key that has signed. Keys in
// other processes sign with sign.
func Open(path string, sign signing.RemoteSign, options reload.Options) (*Store, error) {
	var last *State // parse is never called concurrently
	file, err := reload.Open(path, func(data []byte) (State, error) {
		state, err := decode(data, sign)
		if err == nil {
			err = follows(last, state)
		}
		if err != nil {
			return State{}, err
		}
		last = &state
		return state, nil
	}, options)
	if err != nil {
		return nil, withHint(err)
	}
	return &Store{file: file, sign: sign, changed: func(*signing.Ring) {}}, nil
}

// Apply changes the ring of Load as other rings want it, and returns when Watch has reported it.
func (s *Store) Apply(desired Desired) {
	s.calls.Lock()
	defer s.calls.Unlock()
	s.desired.Store(&desired)
	s.changed(s.Load())
}

// State returns what is in use of the file, without what other rings want. It does not block.
func (s *Store) State() State { return s.file.Get() }

// Read reads the file, which may have something else than what is in use.
func (s *Store) Read() (State, error) { return At(s.file.Path()).Signing(s.sign).Read() }

// Load implements signing.Store.
func (s *Store) Load() *signing.Ring {
	if desired := s.desired.Load(); desired != nil {
		return s.State().Apply(*desired)
	}
	return s.State().Ring()
}

// Watch implements signing.Store.
func (s *Store) Watch(ctx context.Context, changed func(*signing.Ring), refused func(error)) {
	serially := func(call func()) {
		s.calls.Lock()
		defer s.calls.Unlock()
		call()
	}
	serially(func() {
		if s.changed = changed; s.desired.Load() != nil { // Apply came first
			changed(s.Load())
		}
	})
	defer serially(func() { s.changed = func(*signing.Ring) {} })
	s.file.Watch(ctx, func(State) { serially(func() { changed(s.Load()) }) }, func(err error) { serially(func() { refused(err) }) })
}

// Status implements signing.Store.
func (s *Store) Status() signing.StoreStatus {
	state := s.State()
	detail := fmt.Sprintf("generation %d", state.Generation)
	if _, ok := state.Next(); !ok {
		detail += ", without a next key"
	}
	return signing.StoreStatus{Detail: detail, Refused: s.file.Refused()}
}
