// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files so that a reader, or a machine that loses power,
// finds the old content or the new one and nothing in between.
//
// The new content is first written to a file in the same directory whose name begins
// with a dot: the kubelet reads all other files of its manifests directory. No such file
// is left behind unless the process is killed; RemoveLeftovers removes it then.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Write makes path have the given content. A file that is there keeps its mode and
// owner; a new one gets mode and, if root writes it, the owner of its directory: the
// process that is to read it may be another user's. A symbolic link stays one.
func Write(path string, data []byte, mode fs.FileMode) error {
	target, err := resolve(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := write(target, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// RemoveLeftovers removes what killed writers of path have left. The caller sees to it
// that nobody is writing path.
func RemoveLeftovers(path string) error {
	leftovers, err := filepath.Glob(temporaryPattern(path))
	if err != nil {
		return err // only a path with the characters of a pattern in it
	}
	for _, leftover := range leftovers {
		if err := Remove(leftover); err != nil {
			return err
		}
	}
	return nil
}

func temporaryPattern(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-*")
}

// Remove removes path for good. It is no error if it is not there.
func Remove(path string) error {
	if err := os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err // it names the path
	}
	return syncDirectory(filepath.Dir(path))
}

func resolve(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return target, err
}

func write(path string, data []byte, mode fs.FileMode) (err error) {
	dir := filepath.Dir(path)
	temporary, err := os.CreateTemp(dir, filepath.Base(temporaryPattern(path)))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temporary.Name()))
		}
	}()
	if err := fill(temporary, data, path, mode); err != nil {
		return errors.Join(err, temporary.Close())
	}
	if err := temporary.Close(); err != nil {
		return err
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return err
	}
	return syncDirectory(dir)
}

// fill gives the temporary file all that the new one is to have.
func fill(temporary *os.File, data []byte, path string, mode fs.FileMode) error {
	before, err := os.Stat(path)
	switch {
	case err == nil:
		mode = before.Mode().Perm()
		err = setOwner(temporary, before)
	case errors.Is(err, fs.ErrNotExist):
		err = GiveAway(temporary, path)
	}
	if err != nil {
		return err
	}
	if err := temporary.Chmod(mode); err != nil {
		return err
	}
	if _, err := temporary.Write(data); err != nil {
		return err
	}
	return temporary.Sync()
}

// GiveAway has a new file belong to the owner of the directory that path is in, if root
// made it.
func GiveAway(file *os.File, path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	return setOwner(file, dir)
}

func setOwner(temporary *os.File, like fs.FileInfo) error {
	owner, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	mine, err := temporary.Stat()
	if err != nil {
		return err
	}
	if now, ok := mine.Sys().(*syscall.Stat_t); ok && now.Uid == owner.Uid && now.Gid == owner.Gid {
		return nil
	}
	return temporary.Chown(int(owner.Uid), int(owner.Gid))
}

// syncDirectory makes a name in a directory last.
func syncDirectory(dir string) error {
	opened, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(opened.Sync(), opened.Close())
}
