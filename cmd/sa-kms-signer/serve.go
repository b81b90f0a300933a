// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
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

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sa-controller-manager/internal/atomicfile"
)

const (
	// resync is how often --keys-dir is read. A file that is being written is read again soon.
	resync = 2 * time.Second

	// stopTimeout is for a process that is to end. It is longer than the drain of a socket; one that waits for its
	// library is killed then.
	stopTimeout = 5 * time.Second

	// stable is how long a process runs that is started again without delay.
	stable = time.Minute

	// notServed is a file beside the sockets with a line for each key that does not sign now. Without one there is no
	// such file.
	notServed = "not-served"

	// maxFileBytes is how long a key's file, a PIN or a token may be.
	maxFileBytes = 64 << 10
)

// restarts are the delays before a process is started again: 1, 2, 4, and then always 8 s.
func restarts() wait.Backoff { return wait.Backoff{Duration: time.Second, Factor: 2, Steps: 3} }

// A supervisor has a process for each key of --keys-dir. It loads no library of a backend.
type supervisor struct {
	keysDir, socketDir, verbosity string

	mu       sync.Mutex
	follows  map[string]context.CancelFunc // by the name of the key
	reasons  map[string]string             // why a key does not sign, by its name; why a file or a directory has no effect, by its own
	unsaid   string                        // why reasons could not be written
	followed sync.WaitGroup
}

// serve serves the keys until ctx ends.
func (s *supervisor) serve(ctx context.Context) error {
	if err := errors.Join(checkDirectory("keys-dir", s.keysDir), checkDirectory("socket-dir", s.socketDir)); err != nil {
		return err
	}
	lock, err := os.Open(s.socketDir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("--socket-dir=%s: %w: want a directory that no other sa-kms-signer uses", s.socketDir, err)
	}
	for s.pass(ctx); pause(ctx, resync); {
		s.pass(ctx)
	}
	s.followed.Wait()
	return context.Cause(ctx)
}

func checkDirectory(flag, dir string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || !filepath.IsAbs(dir) {
		return fmt.Errorf("--%s=%s: want the absolute path of a directory that exists", flag, dir)
	}
	return nil
}

// pause returns false if ctx ends first.
func pause(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}

// pass follows the directory. One that cannot be read changes nothing.
func (s *supervisor) pass(ctx context.Context) {
	files, err := os.ReadDir(s.keysDir)
	if err != nil {
		s.set(ctx, s.keysDir, fmt.Sprintf("--keys-dir: %v: the keys that are served stay", err))
		return
	}
	s.set(ctx, s.keysDir, "")
	there := map[string]bool{}
	for _, file := range files {
		if name, is := strings.CutSuffix(file.Name(), ".yaml"); is {
			there[name] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, stop := range s.follows {
		if !there[name] {
			stop()
		}
	}
	for name := range there {
		if s.follows[name] != nil { // or it has not yet ended since the file was removed
			continue
		}
		following, stop := context.WithCancel(ctx)
		s.follows[name] = stop
		s.followed.Go(func() {
			s.follow(following, name)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.follows, name)
		})
	}
}

// follow has a process serve the key that is in its file, until ctx ends. A file that has changed takes effect once a
// second process has proved that the key signs.
func (s *supervisor) follow(ctx context.Context, name string) {
	path, served, stop := keyFile(s.keysDir, name), []byte(nil), func() {}
	for more := true; more; more = pause(ctx, resync) {
		file, err := readFile(path)
		reason := ""
		switch {
		case err != nil:
			reason = fmt.Sprintf("key %s: %v", name, err)
		case served != nil && bytes.Equal(served, file):
		default:
			if served != nil {
				s.run(ctx, name, file, func(said string) { reason = said }, "--check")
			}
			if reason == "" && ctx.Err() == nil {
				stop()
				served, stop = file, s.keep(ctx, name, file)
			}
		}
		s.set(ctx, path, reason)
	}
	stop()
	s.set(ctx, path, "")
	klog.FromContext(ctx).Info("Stopped serving a key", "key", name)
}

// keep has a process serve a key, and another one when it has ended, until stop is called, which returns once there is none.
func (s *supervisor) keep(ctx context.Context, name string, file []byte) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	s.set(ctx, name, fmt.Sprintf("key %s: %s", name, opening))
	go func() {
		defer close(ended)
		delays := restarts()
		for more := true; more; more = pause(ctx, delays.Step()) {
			begun := time.Now()
			s.run(ctx, name, file, func(reason string) { s.set(ctx, name, reason) })
			_ = os.Remove(socketFile(s.socketDir, name)) // of a process that was killed
			if time.Since(begun) > stable {
				delays = restarts()
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		s.set(ctx, name, "")
	}
}

// run starts a process for a key, and returns when it has ended. The process reports why the key does not sign each
// time that this changes, "" when it does.
//
// Nothing of the file is among its arguments, which every user can read.
func (s *supervisor) run(ctx context.Context, name string, file []byte, reported func(reason string), flags ...string) {
	reports, theirs, err := os.Pipe()
	if err == nil {
		args := append([]string{"serve-key", "--socket-dir=" + s.socketDir, "--" + verbosity + "=" + s.verbosity}, flags...)
		process := exec.CommandContext(ctx, "/proc/self/exe", append(args, "--", name)...) // also when its file was replaced
		process.Stdin, process.Stdout, process.Stderr, process.ExtraFiles = bytes.NewReader(file), os.Stderr, os.Stderr, []*os.File{theirs}
		process.Cancel, process.WaitDelay = func() error { return process.Process.Signal(syscall.SIGTERM) }, stopTimeout
		process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		err = process.Start()
		_ = theirs.Close()
		var reason string
		for decoder := json.NewDecoder(reports); decoder.Decode(&reason) == nil; {
			reported(reason)
		}
		_ = reports.Close()
		if err == nil {
			err = process.Wait()
		}
	}
	if err != nil && ctx.Err() == nil {
		reported(fmt.Sprintf("key %s: its process: %v", name, err))
	}
}

// set keeps why something is not as it should be, "" if it is, and keeps a file of all for a readiness probe.
func (s *supervisor) set(ctx context.Context, what, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	logger := klog.FromContext(ctx)
	switch before := s.reasons[what]; {
	case reason == "":
		delete(s.reasons, what)
	case reason != before:
		s.reasons[what] = reason
		if !strings.HasSuffix(reason, opening) {
			logger.Error(nil, "Failed to serve a key, trying again", "reason", reason)
		}
	}
	err := s.say()
	if err == nil {
		s.unsaid = ""
	} else if s.unsaid != err.Error() {
		s.unsaid = err.Error()
		logger.Error(err, "Failed to say for the readiness probe which keys do not sign, trying again")
	}
}

// say writes the file for the readiness probe if it is another one than that there is.
func (s *supervisor) say() error {
	path := filepath.Join(s.socketDir, notServed)
	if len(s.reasons) == 0 {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	text := ""
	for _, what := range slices.Sorted(maps.Keys(s.reasons)) {
		text += s.reasons[what] + "\n"
	}
	if before, _ := os.ReadFile(path); string(before) == text {
		return nil
	}
	err := atomicfile.Write(path, []byte(text), 0o600)
	if err != nil {
		_ = os.WriteFile(path, nil, 0o600) // a full disk has room for this
	}
	if code, is := errors.AsType[syscall.Errno](err); is { // without the name of a temporary file
		err = fmt.Errorf("write %s: %w", path, code)
	}
	return err
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

// keyFile and socketFile are where the URI and the socket of a key are.
func keyFile(dir, name string) string    { return filepath.Join(dir, name+".yaml") }
func socketFile(dir, name string) string { return filepath.Join(dir, name+".sock") }
