// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package ring

import (
	"os"

	"golang.org/x/sys/unix"
)

// tryLock fails with EWOULDBLOCK if another process holds the lock.
func tryLock(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

func unlockFile(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_UN) }
