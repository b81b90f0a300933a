// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"sa-controller-manager/internal/testutil"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	testutil.Must(t, Write(path, []byte("one"), 0o600))
	holds(t, path, "one", 0o600)
	testutil.Must(t, os.Chmod(path, 0o640))
	testutil.Must(t, Write(path, []byte("two"), 0o600))
	holds(t, path, "two", 0o640)
	only(t, dir, "a.yaml")
	for range 2 {
		testutil.Must(t, Remove(path))
	}
	only(t, dir)
}

// A killed writer's file is the next writer's to remove; what others have is not.
func TestRemoveLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{".a.yaml-123", ".a.yaml-9", ".b.yaml-123", "a.yaml"} {
		testutil.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	testutil.Must(t, RemoveLeftovers(filepath.Join(dir, "a.yaml")))
	only(t, dir, ".b.yaml-123", "a.yaml")
}

// A root user's umask or a directory that cannot be written must not cost the old file.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "is-a-directory")
	testutil.Must(t, os.Mkdir(path, 0o700))
	testutil.Expect(t, Write(path, []byte("x"), 0o600) != nil, "a directory was replaced")
	only(t, dir, "is-a-directory")
	testutil.Expect(t, Write(filepath.Join(dir, "none", "x"), nil, 0o600) != nil, "written into a directory that does not exist")
}

// A disk that is full or read-only must not cost the old file either, and is named.
func TestWriteOnASpoiledDisk(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(dir string) error
		want  error
	}{
		"full": {want: unix.ENOSPC, spoil: func(dir string) error {
			if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
				return fmt.Errorf("fill the disk: %w", err)
			}
			return nil
		}},
		"read-only": {want: unix.EROFS, spoil: func(dir string) error {
			return unix.Mount("", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, "")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); errors.Is(err, unix.EPERM) {
				t.Skip("only root may mount a file system")
			} else if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
			path := filepath.Join(dir, "ring.json")
			testutil.Must(t, Write(path, []byte("one"), 0o600))
			testutil.Must(t, tc.spoil(dir))
			if err := Write(path, make([]byte, 10_000), 0o600); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("the error is %v, want %v and the directory", err, tc.want)
			}
			holds(t, path, "one", 0o600)
			left := testutil.Get(filepath.Glob(filepath.Join(dir, ".*")))(t)
			testutil.Expect(t, len(left) == 0, "left over: %q", left)
		})
	}
}

func TestWriteThroughALink(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	link, target := filepath.Join(dir, "link"), filepath.Join(elsewhere, "target")
	testutil.Must(t, os.WriteFile(target, []byte("one"), 0o600))
	testutil.Must(t, os.Symlink(target, link))
	testutil.Must(t, Write(link, []byte("two"), 0o600))
	holds(t, target, "two", 0o600)
	info, err := os.Lstat(link)
	testutil.Expect(t, err == nil && info.Mode()&fs.ModeSymlink != 0, "the link is gone: %v, %v", info, err)
}

// The kubelet takes every name without a dot for a manifest, at any time.
func TestNothingButDotNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	watcher := testutil.Get(fsnotify.NewBufferedWatcher(1000))(t)
	t.Cleanup(func() { _ = watcher.Close() })
	testutil.Must(t, watcher.Add(dir))
	path := filepath.Join(dir, "a.yaml")
	for range 20 {
		testutil.Must(t, Write(path, []byte("content"), 0o600))
	}
	testutil.Must(t, os.WriteFile(filepath.Join(dir, ".end"), nil, 0o600))
	for event := range watcher.Events {
		name := filepath.Base(event.Name)
		if name == ".end" {
			return
		}
		testutil.Expect(t, (name[0] == '.' || name == "a.yaml") && (name != "a.yaml" || !event.Has(fsnotify.Write)),
			"the kubelet would see %s",
			event)
	}
}

func holds(t *testing.T, path, want string, mode fs.FileMode) {
	t.Helper()
	data := testutil.Get(os.ReadFile(path))(t)
	info := testutil.Get(os.Stat(path))(t)
	testutil.Expect(t, string(data) == want && info.Mode().Perm() == mode, "%s holds %q with mode %o, want %q and %o", path, data,
		info.Mode().Perm(), want, mode)
}

func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries := testutil.Get(os.ReadDir(dir))(t)
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	testutil.Check(t, "files", names, got)
}
