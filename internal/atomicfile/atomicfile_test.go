// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/fsnotify/fsnotify"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	if err := Write(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "one", 0o600)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "two", 0o640)
	only(t, dir, "a.yaml")
	for range 2 {
		if err := Remove(path); err != nil {
			t.Error(err)
		}
	}
	only(t, dir)
}

// A killed writer's file is the next writer's to remove; what others have is not.
func TestRemoveLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{".a.yaml-123", ".a.yaml-9", ".b.yaml-123", "a.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveLeftovers(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	only(t, dir, ".b.yaml-123", "a.yaml")
}

// A root user's umask or a directory that cannot be written must not cost the old file.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "is-a-directory")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	only(t, dir, "is-a-directory")
	if err := Write(filepath.Join(dir, "none", "x"), nil, 0o600); err == nil {
		t.Error("written into a directory that does not exist")
	}
}

func TestWriteThroughALink(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	link, target := filepath.Join(dir, "link"), filepath.Join(elsewhere, "target")
	if err := os.WriteFile(target, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	holds(t, target, "two", 0o600)
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
}

// The kubelet takes every name without a dot for a manifest, at any time.
func TestNothingButDotNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	watcher, err := fsnotify.NewBufferedWatcher(1000)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = watcher.Close() })
	if err := watcher.Add(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a.yaml")
	for range 20 {
		if err := Write(path, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for event := range watcher.Events {
		name := filepath.Base(event.Name)
		if name == ".end" {
			return
		}
		if name[0] != '.' && name != "a.yaml" || name == "a.yaml" && event.Has(fsnotify.Write) {
			t.Errorf("the kubelet would see %s", event)
		}
	}
}

func holds(t *testing.T, path, want string, mode fs.FileMode) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || string(data) != want {
		t.Errorf("%s holds %q, %v; want %q", path, data, err, want)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != mode {
		t.Errorf("%s has mode %o, want %o", path, info.Mode().Perm(), mode)
	}
}

func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(names) {
		t.Errorf("%v in the directory, want %v", entries, names)
	}
}
