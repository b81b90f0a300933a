// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

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

// syncDirectory makes a new or removed name in a directory durable.
func syncDirectory(dir string) error {
	opened, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(opened.Sync(), opened.Close())
}
