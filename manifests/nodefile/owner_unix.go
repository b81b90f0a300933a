// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package nodefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"sa-controller-manager/internal/atomicfile"
)

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
