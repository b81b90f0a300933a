// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package nodefile

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

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
