// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

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
)

const lockName = ".lock"

// ReadOnlyError says that a directory is served and cannot be rotated where it is.
type ReadOnlyError struct {
	Path string
	// Why in a few words.
	Why string
}

func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("key directory %s is read-only here (%s): run the command on the directory that it is a copy of, and bring the result here", e.Path, e.Why)
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
	return fmt.Sprintf("key directory %s is being changed by %s: try again when it has ended", e.Path, who)
}

// lock takes the writers' lock of a directory. The kernel gives it up when the process ends, however it ends; the file stays,
// because removing it would let two writers lock two files of the same name.
func lock(dir string) (unlock func(), err error) {
	if err := writable(dir); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, fileMode)
	switch {
	case errors.Is(err, unix.EROFS):
		return nil, &ReadOnlyError{Path: dir, Why: "its file system is"}
	case errors.Is(err, fs.ErrPermission):
		return nil, &ReadOnlyError{Path: dir, Why: "permission denied for user " + strconv.Itoa(os.Geteuid())}
	case err != nil:
		return nil, err
	}
	if err := hold(file); err != nil {
		held := &LockedError{Path: dir}
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
	if err := give(file, filepath.Dir(file.Name())); err != nil {
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

// writable refuses a volume that kubelet keeps: its files are links, and it puts its own content back.
func writable(dir string) error {
	for _, name := range []string{"..data", stateName} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return &ReadOnlyError{Path: dir, Why: name + " is a link, as in a mounted Secret"}
		}
	}
	return nil
}
