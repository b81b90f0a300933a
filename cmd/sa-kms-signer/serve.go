// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

const (
	// resync is how often --keys-dir is read, and how long it takes until an opening is tried again.
	resync = 2 * time.Second

	// stopTimeout is for a process that is to end. It is longer than the drain of a socket; one that waits for its
	// library is killed then.
	stopTimeout = 5 * time.Second

	// notServed is a file beside the sockets with a line for each key that does not sign now. Without one there is no
	// such file.
	notServed = "not-served"

	// maxFileBytes is how long a key's file, a PIN or a token may be.
	maxFileBytes = 64 << 10
)

// A supervisor has a process for each key of --keys-dir. It loads no library of a backend.
type supervisor struct {
	keysDir, socketDir, verbosity string

	mu      sync.Mutex
	follows map[string]context.CancelFunc // by the name of the key
	// reasons are why a key does not sign, by its NAME; why its file has no effect, by NAME/; and others, by /...
	reasons  map[string]error
	followed sync.WaitGroup
}

// serve serves the keys until ctx ends.
func (s *supervisor) serve(ctx context.Context) error {
	lock, err := os.OpenFile(s.socketDir, syscall.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("--socket-dir: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("--socket-dir=%s: %w: want a directory that no other sa-kms-signer uses", s.socketDir, err)
	}
	for s.pass(ctx); pause(ctx); {
		s.pass(ctx)
	}
	s.followed.Wait()
	return nil
}

// pause waits for resync, and returns false if ctx ends first.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(resync):
		return true
	}
}

// pass follows the directory. One that cannot be read changes nothing.
func (s *supervisor) pass(ctx context.Context) {
	files, err := os.ReadDir(s.keysDir)
	if err != nil {
		s.set(ctx, "/", fmt.Errorf("--keys-dir: %w: the keys that are served stay", err))
		return
	}
	s.set(ctx, "/", nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, stop := range s.follows {
		if !slices.ContainsFunc(files, func(file fs.DirEntry) bool { return file.Name() == name+".yaml" }) {
			stop()
		}
	}
	for _, file := range files {
		name, is := strings.CutSuffix(file.Name(), ".yaml")
		if !is || s.follows[name] != nil { // also one that has not yet ended since its file was removed
			continue
		}
		following, stop := context.WithCancel(ctx)
		s.follows[name] = stop
		s.followed.Go(func() { s.follow(following, name) })
	}
}

// follow has a process serve the key that is in its file, until ctx ends. A file that has changed takes effect once a
// second process has proved that the key signs.
func (s *supervisor) follow(ctx context.Context, name string) {
	path, served, stop := filepath.Join(s.keysDir, name+".yaml"), []byte(nil), func() {}
	for more := true; more; more = pause(ctx) {
		file, err := readFile(path)
		_, missing := os.Lstat(path)
		switch {
		case errors.Is(missing, fs.ErrNotExist): // pass finds out whether it was removed
			continue
		case err != nil:
			err = fmt.Errorf("key %s: %w", name, err)
		case served == nil || !bytes.Equal(served, file):
			if served != nil {
				err = opening(name) // until its process says that it signs
				s.run(ctx, "check", name, file, func(reason error) { err = reason })
			}
			if err == nil && ctx.Err() == nil {
				stop()
				served, stop = file, s.keep(ctx, name, file)
			}
		}
		s.set(ctx, name+"/", err)
	}
	stop()
	s.set(ctx, name+"/", nil)
	klog.FromContext(ctx).Info("Stopped serving a key", "key", name)
	s.mu.Lock()
	delete(s.follows, name)
	s.mu.Unlock()
}

func opening(name string) error { return fmt.Errorf("key %s: %w", name, errOpening) }

// keep has a process serve a key, and another one when it has ended, until stop is called, which returns once there is none.
func (s *supervisor) keep(ctx context.Context, name string, file []byte) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	s.set(ctx, name, opening(name))
	keeping.Go(func() {
		for begun, more := time.Now(), true; more; begun = time.Now() {
			s.run(ctx, "serve", name, file, func(reason error) { s.set(ctx, name, reason) })
			s.set(ctx, name, opening(name))              // unless it has said why it has ended
			_ = os.Remove(socketFile(s.socketDir, name)) // of a process that was killed
			more = time.Since(begun) > resync || pause(ctx)
		}
	})
	return func() {
		cancel()
		keeping.Wait()
		s.set(ctx, name, nil)
	}
}

// run has a process check or serve a key, and returns when it has ended. The process reports why the key does not sign
// each time that this changes, nil when it does.
//
// Nothing of the file is among its arguments, which every user can read.
func (s *supervisor) run(ctx context.Context, task, name string, file []byte, reported func(reason error)) {
	reports, theirs, err := os.Pipe()
	if err == nil {
		process := exec.CommandContext(ctx, "/proc/self/exe", //nolint:gosec // itself, also when its file was replaced
			"key", "--"+verbosity+"="+s.verbosity, "--", task, name, s.socketDir)
		process.Stdin, process.Stdout, process.Stderr, process.ExtraFiles = bytes.NewReader(file), os.Stderr, os.Stderr, []*os.File{theirs}
		process.Cancel, process.WaitDelay = func() error { return process.Process.Signal(syscall.SIGTERM) }, stopTimeout
		process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		err = process.Start()
		_ = theirs.Close()
		var reading sync.WaitGroup
		reading.Go(func() {
			for lines := bufio.NewScanner(reports); lines.Scan(); {
				var said error
				if lines.Text() != "" {
					said = errors.New(lines.Text())
				}
				reported(said)
			}
		})
		if err == nil {
			err = process.Wait()
		}
		_ = reports.SetReadDeadline(time.Now().Add(time.Second)) // a process that its library has started may have the other end
		reading.Wait()
		_ = reports.Close()
	}
	if err != nil && ctx.Err() == nil {
		reported(fmt.Errorf("key %s: its process: %w", name, err))
	}
}

// set keeps why something is not as it should be, nil if it is, and keeps a file of all for a readiness probe.
func (s *supervisor) set(ctx context.Context, what string, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(ctx, what, reason)
	s.note(ctx, "/"+notServed, s.say())
}

// note logs a reason once. The caller holds mu.
func (s *supervisor) note(ctx context.Context, what string, reason error) {
	if before, isOpening := s.reasons[what], errors.Is(reason, errOpening); reason == nil {
		delete(s.reasons, what)
	} else if before == nil || !isOpening && before.Error() != reason.Error() { // an opening that follows an error is the next attempt
		if s.reasons[what] = reason; !isOpening {
			klog.FromContext(ctx).Error(reason, "Failed to serve a key, trying again; a key that is served stays")
		}
	}
}

// say writes the file for the readiness probe if it is another one than that there is.
func (s *supervisor) say() error {
	path := filepath.Join(s.socketDir, notServed)
	var text strings.Builder
	for _, what := range slices.Sorted(maps.Keys(s.reasons)) {
		text.WriteString(s.reasons[what].Error() + "\n")
	}
	before, err := os.ReadFile(path)
	switch none := len(s.reasons) == 0; {
	case none && errors.Is(err, fs.ErrNotExist), !none && string(before) == text.String():
		return nil
	case none:
		return os.Remove(path)
	}
	// A full disk has room for an empty one.
	return errors.Join(os.WriteFile(path+".new", []byte(text.String()), 0o600), os.Rename(path+".new", path))
}

// readFile reads a regular file, and never waits for the writer of another one.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, errors.Join(err, fmt.Errorf("%s: want a regular file of %d bytes at most", path, maxFileBytes))
	}
	return io.ReadAll(io.LimitReader(file, maxFileBytes))
}

// socketFile is where the socket of a key is.
func socketFile(dir, name string) string { return filepath.Join(dir, name+".sock") }
