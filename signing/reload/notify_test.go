// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
)

// These tests prove that notifications alone are enough: the poll is an hour away. The files are
// real.
var notified = Options{Poll: time.Hour, Settle: 20 * time.Millisecond}

// expect waits for the next thing told. What has not come after the time an operator is promised is
// lost.
func (w *watched) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-w.told:
		testutil.Expect(t, got == want, "told %q, want %q", got, want)
	case <-time.After(15 * time.Second):
		t.Fatalf("not told %q within 15 s", want)
	}
}

func TestWatchSeesTheWaysFilesChange(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(path string) error
	}{
		"rewritten": {"shell redirection, cp", func(path string) error {
			return os.WriteFile(path, []byte("two"), 0o600)
		}},
		"renamed over": {"editors, atomic writers", func(path string) error {
			return errors.Join(
				os.WriteFile(path+".tmp", []byte("two"), 0o600),
				os.Rename(path+".tmp", path))
		}},
		"replaced by a link": {"ln -sf", func(path string) error {
			return errors.Join(
				os.WriteFile(path+".v2", []byte("two"), 0o600),
				os.Symlink(path+".v2", path+".link"),
				os.Rename(path+".link", path))
		}},
		"same time stamp and size": {"the content decides", func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return errors.Join(
				os.WriteFile(path, []byte("two"), 0o600),
				os.Chtimes(path, info.ModTime(), info.ModTime()))
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t, "one")
			w := watch(t, path, notified)
			testutil.Must(t, tc.change(path))
			w.expect(t, "+two")
			got := *w.Get()
			testutil.Expect(t, got == "two", "%s: Get returns %q", tc.reason, got)
		})
	}
}

// TestWatchSecretVolume changes a file the way kubelet updates a Secret volume: the file is a link
// through ..data, and ..data is a link that is renamed over (k8s.io/kubernetes
// pkg/volume/util/atomic_writer.go).
func TestWatchSecretVolume(t *testing.T) {
	t.Parallel()
	volume := t.TempDir()
	publish := func(version, content string) {
		t.Helper()
		dir := filepath.Join(volume, "..2026_01_01."+version)
		testutil.Must(t, os.Mkdir(dir, 0o700))
		write(t, filepath.Join(dir, "sa.key"), content)
		testutil.Must(t, os.Symlink(filepath.Base(dir), filepath.Join(volume, "..data_tmp")))
		testutil.Must(t, os.Rename(filepath.Join(volume, "..data_tmp"), filepath.Join(volume, "..data")))
	}
	publish("1", "one")
	path := filepath.Join(volume, "sa.key")
	testutil.Must(t, os.Symlink(filepath.Join("..data", "sa.key"), path))
	w := watch(t, path, notified)

	publish("2", "two")
	testutil.Must(t, os.RemoveAll(filepath.Join(volume, "..2026_01_01.1")))
	w.expect(t, "+two")
	publish("3", "three")
	w.expect(t, "+three")
}

func TestNotifierWithoutDirectory(t *testing.T) {
	t.Parallel()
	n := newDirNotifier(filepath.Join(t.TempDir(), "not", "there"))
	n.renew()
	n.close()
	(&dirNotifier{}).close() // fsnotify could not be set up
}
