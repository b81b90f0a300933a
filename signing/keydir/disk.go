// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	directoryMode = 0o700
	fileMode      = 0o600 // of every file: even a public half is nobody else's to replace
)

// disk makes the single steps of a writer. before is called ahead of each one; its error stands for the end of the process,
// after which nothing is done any more.
type disk struct {
	before func(step string) error
	flush  func(*os.File) error // nil means Sync, which takes a test of many steps too long
}

func (d disk) step(name string, do func() error) error {
	if d.before != nil {
		if err := d.before(name); err != nil {
			return err
		}
	}
	return do()
}

// replace makes path have the given content, or leaves it as it was. The new content is complete on the disk before it has
// the name.
func (d disk) replace(path string, data []byte) error {
	temporary := temporaryName(path)
	name := filepath.Base(path)
	if err := d.remove(temporary); err != nil {
		return err
	}
	if err := d.fill(temporary, name, data); err != nil {
		return errors.Join(err, d.remove(temporary))
	}
	if err := d.step("rename "+name, func() error { return os.Rename(temporary, path) }); err != nil {
		return errors.Join(err, d.remove(temporary))
	}
	return d.syncDirectory(filepath.Dir(path))
}

func (d disk) fill(temporary, name string, data []byte) (err error) {
	var file *os.File
	err = d.step("create "+name, func() error {
		file, err = os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, fileMode)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := d.step("give "+name, func() error { return give(file, filepath.Dir(temporary)) }); err != nil {
		return err
	}
	if err := d.step("write "+name, func() error { _, err := file.Write(data); return err }); err != nil {
		return err
	}
	return d.step("sync "+name, func() error { return d.sync(file) })
}

// give makes a new file as private as it must be, whatever the umask, and has it belong to the owner of the directory: root
// runs the commands, and the process that reads the keys need not be root.
func give(file *os.File, dir string) error {
	if err := file.Chmod(fileMode); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return file.Chown(int(owner.Uid), int(owner.Gid))
}

// remove removes a file for good. It is no error if it is not there, and then it is no step either.
func (d disk) remove(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := d.step("remove "+filepath.Base(path), func() error { return os.Remove(path) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.syncDirectory(filepath.Dir(path))
}

func (d disk) sync(file *os.File) error {
	if d.flush != nil {
		return d.flush(file)
	}
	return file.Sync()
}

// syncDirectory makes the names in a directory last.
func (d disk) syncDirectory(dir string) error {
	return d.step("sync directory", func() error {
		opened, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(d.sync(opened), opened.Close()); err != nil {
			return fmt.Errorf("sync %s: %w", dir, err)
		}
		return nil
	})
}

// temporaryName is always the same for a file, so that what a killed writer left is found again.
func temporaryName(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
}
