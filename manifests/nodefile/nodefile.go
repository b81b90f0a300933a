// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodefile changes the files of a node: a file that has changed since it was read stays as it
// is, and a program that root runs comes from a place where only root can put one.
package nodefile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pmezard/go-difflib/difflib"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/manifests/staticpod"
)

// Write replaces the content of a file; nil is no file.
type Write struct {
	Path          string
	Before, After []byte
}

// Append appends a write unless it would change nothing.
func Append(writes []Write, path string, before, after []byte) []Write {
	if before != nil && after != nil && bytes.Equal(before, after) || before == nil && after == nil {
		return writes
	}
	return append(writes, Write{Path: path, Before: before, After: after})
}

// Reverse returns the writes that undo others.
func Reverse(writes []Write) (reversed []Write) {
	for _, w := range slices.Backward(writes) {
		reversed = append(reversed, Write{Path: w.Path, Before: w.After, After: w.Before})
	}
	return reversed
}

// Read returns the content of a file, nil if it does not exist.
func Read(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Do writes or removes the file.
func (w Write) Do() error {
	err := w.change()
	if errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("%w; it is a mount, for instance one of kind's extraMounts: change it where it is mounted from", err)
	}
	for _, disk := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EDQUOT, syscall.EIO} {
		if errors.Is(err, disk) {
			return fmt.Errorf("%w; look at the disk of %s (df)", err, filepath.Dir(w.Path))
		}
	}
	return err
}

// change refuses to overwrite a file that has changed since it was read: steps are minutes apart. It creates
// directories that only their owner can read: they hold manifests.
func (w Write) change() error {
	now, err := Read(w.Path)
	if err != nil {
		return err // it names the path
	}
	if (now == nil) != (w.Before == nil) || !bytes.Equal(now, w.Before) {
		return fmt.Errorf("%s has been changed since it was read", w.Path)
	}
	if w.After == nil {
		return atomicfile.Remove(w.Path)
	}
	if err := os.MkdirAll(filepath.Dir(w.Path), 0o700); err != nil {
		return err // it names the path
	}
	return atomicfile.Write(w.Path, w.After, 0o600)
}

// Diff returns a unified diff.
func (w Write) Diff() string {
	names := map[bool]string{true: "/dev/null", false: w.Path}
	from, to := names[w.Before == nil], names[w.After == nil]
	lines := func(data []byte) []string { return slices.Collect(strings.Lines(string(data))) }
	text, _ := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{ // writing to memory does not fail
		A: lines(w.Before), B: lines(w.After), FromFile: from, ToFile: to, Context: 3,
	})
	return text
}

// UnsafePlace returns what is wrong with the path of a program on the node that is mounted at root: a
// reboot may remove it, or another user than root may replace it. It returns "" if nothing is.
func UnsafePlace(root, file string) (why string, err error) {
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return "", err
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return "", err // it names the path
	}
	name := "/" + strings.TrimPrefix(strings.TrimPrefix(file, root), "/")
	for _, gone := range []string{"/tmp", "/var/tmp", "/run", "/dev", "/home", "/root"} {
		if staticpod.Below(name, gone) {
			return "it is below " + gone, nil
		}
	}
	for at := name; ; at = path.Dir(at) {
		info, err := os.Stat(filepath.Join(root, at))
		if err != nil {
			return "", err
		}
		if why := writableByOthers(info); why != "" {
			return at + " " + why, nil
		}
		if at == "/" {
			return "", nil
		}
	}
}

// Lock keeps other processes from locking a directory, without a file, until this one ends or calls unlock.
func Lock(directory string) (unlock func(), err error) {
	file, err := os.Open(directory)
	if err != nil {
		return nil, err // it names the path
	}
	if err = atomicfile.Lock(file); errors.Is(err, atomicfile.ErrLocked) {
		err = fmt.Errorf("another kubeadm takeover or handback works on %s; let it end first", directory)
	}
	unlock = func() { _ = file.Close() } // nothing was written
	if err != nil {
		unlock()
	}
	return unlock, err
}

// writableByOthers returns why another user than root may write a file or directory, "" if none may.
func writableByOthers(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return ""
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Sprintf("belongs to user %d and not to root", stat.Uid)
	case info.Mode().Perm()&0o002 != 0, info.Mode().IsRegular() && info.Mode().Perm()&0o020 != 0 && stat.Gid != 0:
		return "may be written by others"
	}
	return ""
}
