// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ringfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sa-controller-manager/internal/atomicfile"
)

// ReadOnlyError says that a ring file is read and cannot be rotated where it is.
type ReadOnlyError struct {
	Path string
	// Why in a few words.
	Why string
}

func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("key ring %s is read-only here (%s): run the command on the file that it is a copy of, and bring the result here", e.Path, e.Why)
}

// LockedError says that another writer is at work.
type LockedError struct {
	Path string
	// PID of the other writer, 0 if it has not said yet.
	PID int
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.PID > 0 {
		who = "process " + strconv.Itoa(e.PID)
	}
	return fmt.Sprintf("key ring %s is being changed by %s: try again when it has ended", e.Path, who)
}

func (f *File) lockPath() string { return f.path + ".lock" }

// lock takes the writers' lock. The kernel gives it up when the process ends, however it ends; its
// file stays, because removing it would let two writers lock two files of the same name.
func (f *File) lock() (unlock func(), err error) {
	file, err := os.OpenFile(f.lockPath(), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, fileMode)
	switch {
	case errors.Is(err, unix.EROFS):
		return nil, &ReadOnlyError{Path: f.path, Why: "its file system is"}
	case errors.Is(err, fs.ErrPermission):
		return nil, &ReadOnlyError{Path: f.path, Why: "permission denied for user " + strconv.Itoa(os.Geteuid())}
	case err != nil:
		return nil, err
	}
	if err := hold(file); err != nil {
		held := &LockedError{Path: f.path}
		if errors.Is(err, unix.EWOULDBLOCK) {
			held.PID = readPID(file)
			err = held
		}
		return nil, errors.Join(err, file.Close())
	}
	return func() { release(file) }, nil
}

// release unlocks before it closes. Closing alone would do, were it not for a process that
// is just being forked elsewhere: until its exec it has the file open too, and the lock.
func release(file *os.File) {
	_ = unix.Flock(int(file.Fd()), unix.LOCK_UN) // if that fails the end of the process unlocks it
	_ = file.Close()
}

func hold(file *os.File) error {
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	if err := atomicfile.GiveAway(file, file.Name()); err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func readPID(file *os.File) int {
	text, err := io.ReadAll(io.LimitReader(file, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

// Writable is nil, or a *ReadOnlyError if the kind of file says already that writers will refuse
// it. That is so in a volume that kubelet keeps: its files are links, and it puts its own content
// back.
func (f *File) Writable() error {
	for _, path := range []string{filepath.Join(filepath.Dir(f.path), "..data"), f.path} {
		info, err := os.Lstat(path)
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return &ReadOnlyError{Path: f.path, Why: filepath.Base(path) + " is a link, as in a mounted Secret"}
		}
	}
	return nil
}
