// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sa-controller-manager/internal/atomicfile"
)

const (
	// socketMode lets the owner and the group connect. The kernel asks for the right to write.
	socketMode = 0o660

	// newSuffix is what a socket is called until it has its mode, and then is renamed from.
	newSuffix = ".new"

	// lockSuffix is the file that a living process holds a lock on. It stays when the process ends:
	// who removes a lock file may remove the one that the next process has just locked.
	lockSuffix = ".lock"

	probeTimeout = time.Second
)

// socket is a unix socket that this process alone serves on.
type socket struct {
	path string
	mode fs.FileMode
	lock *os.File
	file fs.FileInfo // what bind has made
}

// openSocket takes path and begins to listen. A file that a dead process has left is replaced; a
// living one, and a file that is no socket, is an error.
func openSocket(path string, mode fs.FileMode) (*socket, net.Listener, error) {
	lock, err := takeLock(path + lockSuffix)
	if err != nil {
		return nil, nil, fmt.Errorf("external signer socket %s: %w", path, err)
	}
	s := &socket{path: path, mode: mode, lock: lock}
	listener, err := s.bind()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("external signer socket %s: %w", path, err), lock.Close())
	}
	return s, listener, nil
}

var errServed = errors.New("another process serves on it")

// takeLock fails immediately when another process holds the lock. The kernel takes it away from a
// process that dies.
func takeLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open its lock file: %w", err)
	}
	if err = atomicfile.Lock(file); err == nil {
		return file, nil
	}
	_ = file.Close() // nothing was written
	if errors.Is(err, atomicfile.ErrLocked) {
		return nil, errServed
	}
	return nil, err
}

// bind listens under another name and then renames, so that the socket is never there with a wider
// mode, and a previous one is replaced without a moment in which there is none.
func (s *socket) bind() (net.Listener, error) {
	if err := s.checkPrevious(); err != nil {
		return nil, err
	}
	if err := os.Remove(s.path + newSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove what a previous process has left: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path + newSuffix, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	listener.SetUnlinkOnClose(false) // it would remove by the name that the socket had first
	if err := s.publish(); err != nil {
		return nil, errors.Join(err, listener.Close(), os.Remove(s.path+newSuffix))
	}
	return listener, nil
}

func (s *socket) publish() error {
	if err := os.Chmod(s.path+newSuffix, s.mode); err != nil {
		return fmt.Errorf("set its mode: %w", err)
	}
	info, err := os.Lstat(s.path + newSuffix)
	if err != nil {
		return fmt.Errorf("look at it: %w", err)
	}
	if err := os.Rename(s.path+newSuffix, s.path); err != nil {
		return fmt.Errorf("put it in its place: %w", err)
	}
	s.file = info
	return nil
}

// checkPrevious looks at what is in the way. A process that does not know of the lock is found by
// connecting to it.
func (s *socket) checkPrevious() error {
	info, err := os.Lstat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at what is there: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("a file that is not a socket is there")
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", s.path)
	if err != nil {
		return nil // no process listens any more
	}
	_ = conn.Close()
	return errServed
}

// intact says whether the file at path is still the socket that this process listens on: nil,
// fs.ErrNotExist if there is none, or what else is wrong.
func (s *socket) intact() error {
	info, err := os.Lstat(s.path)
	if err != nil {
		return err
	}
	if !os.SameFile(info, s.file) {
		return errors.New("another file has taken its place")
	}
	return nil
}

// close removes the socket, unless another process has put its own there, and gives up the lock.
func (s *socket) close() error {
	var err error
	if s.intact() == nil {
		err = os.Remove(s.path)
	}
	return errors.Join(err, s.lock.Close())
}
