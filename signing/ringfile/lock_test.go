// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ringfile

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnlockDespiteAFork has the lock's file open a second time when it is unlocked, as in
// a process between its fork and its exec.
func TestUnlockDespiteAFork(t *testing.T) {
	t.Parallel()
	f := At(filepath.Join(t.TempDir(), "ring.json"))
	unlock, err := f.lock()
	if err != nil {
		t.Fatal(err)
	}
	second := duplicate(t, f.path+lockSuffix)
	t.Cleanup(func() { _ = unix.Close(second) })
	if _, err := f.lock(); err == nil {
		t.Fatal("it was locked twice")
	}
	unlock()
	unlock, err = f.lock()
	if err != nil {
		t.Fatalf("it is not unlocked: %v", err)
	}
	unlock()
}

// duplicate finds what this process has open under the path.
func duplicate(t *testing.T, path string) int {
	t.Helper()
	const dir = "/proc/self/fd"
	open, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range open {
		if target, err := os.Readlink(filepath.Join(dir, entry.Name())); err != nil || target != path {
			continue
		}
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		second, err := unix.Dup(fd)
		if err != nil {
			t.Fatal(err)
		}
		return second
	}
	t.Fatalf("%s is not open", path)
	return -1
}
