// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files atomically: a reader, also after a power failure, finds the
// old content or the new one and nothing in between.
//
// It writes the new content to a temporary file in the same directory first. The name of that file
// begins with a dot, because the kubelet reads all other files of its manifests directory. Only a
// killed process leaves one behind, which RemoveLeftovers removes.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrLocked is the error of Lock for what another process has locked.
var ErrLocked = errors.New("another process has locked it")

// Write replaces the content of path. An existing file keeps its mode and owner. A new one gets
// mode and, if root writes it, the owner of its directory, because the process that reads it may run
// as another user. A symbolic link stays one.
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

// RemoveLeftovers removes the temporary files that killed writers of path have left. The caller
// ensures that no process is writing path.
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

// Remove removes path durably. A missing file is no error.
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

// fill writes content, mode and owner of the temporary file.
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

// GiveAway changes the owner of a file that root has created to that of its directory.
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
