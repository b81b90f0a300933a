// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sa-controller-manager/signing/reload"
	"sa-controller-manager/signing/testkeys"
)

// followed is a directory under Watch, with what its callbacks were told.
type followed struct {
	*reload.File[*Snapshot]

	told chan string // "+" and the phase when accepted, "-" and the error when refused
}

func follow(t *testing.T, d *Dir) *followed {
	t.Helper()
	file, err := d.Follow(reload.Options{Settle: 20 * time.Millisecond, Poll: 200 * time.Millisecond})
	must(t, err)
	f := &followed{File: file, told: make(chan string, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		file.Watch(ctx, func(s *Snapshot) { f.told <- "+" + string(s.State.Phase()) }, func(err error) { f.told <- "-" + err.Error() })
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return f
}

// expect waits for the next thing told, past what is seen of the steps of a writer.
func (f *followed) expect(t *testing.T, want string) {
	t.Helper()
	for told := ""; !strings.Contains(told, want); {
		select {
		case told = <-f.told:
			if strings.HasPrefix(told, "-") && !strings.Contains(told, want) {
				t.Fatalf("told %q, want %q", told, want)
			}
		case <-time.After(15 * time.Second):
			t.Fatalf("not told %q within 15 s", want)
		}
	}
	if refused := f.Refused(); (refused != nil) != strings.HasPrefix(want, "-") {
		t.Errorf("after %q the directory counts as refused: %v", want, refused)
	}
}

// restored waits until the directory holds again what is in use, which is told to nobody.
func (f *followed) restored(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); f.Refused() != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still refused: %v", f.Refused())
		}
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	d := newRing(t)
	f := follow(t, d)
	publish(t, d, testkeys.P256())
	f.expect(t, "+published")
	old, err := os.ReadFile(d.statePath())
	must(t, err)
	update(t, d, activate)
	f.expect(t, "+activated")
	if f.Get().Active.ID() != p256ID {
		t.Errorf("%v signs", f.Get().Active)
	}
	present, err := os.ReadFile(d.statePath())
	must(t, err)

	must(t, os.WriteFile(d.statePath(), old, 0o600))
	f.expect(t, "-"+d.statePath()+": generation 3 is older than 4, which is in use")
	if f.Get().Active.ID() != p256ID {
		t.Error("an old copy took the key back")
	}
	must(t, os.WriteFile(d.statePath(), []byte("garbage"), 0o600))
	f.expect(t, "-"+d.statePath()+": the state is not JSON")
	must(t, os.WriteFile(d.statePath(), present, 0o600))
	f.restored(t)

	other := strings.Replace(string(present), `"phase": "activated"`, `"phase": "completed"`, 1)
	must(t, os.WriteFile(d.statePath(), []byte(other), 0o600))
	f.expect(t, "-"+d.statePath()+": generation 4 is in use with another content")
	must(t, os.WriteFile(d.statePath(), present, 0o600))
	f.restored(t)

	update(t, d, complete)
	f.expect(t, "+completed")
}

// TestFollowCopies brings the files of another directory one by one and in the wrong order, as a copying tool may.
func TestFollowCopies(t *testing.T) {
	t.Parallel()
	source, copied := newRing(t), At(t.TempDir())
	bring := func(name string) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(source.path, name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(copied.path, name), data, 0o600))
	}
	for name := range files(t, source) {
		bring(name)
	}
	f := follow(t, copied)
	publish(t, source, testkeys.P256())
	bring(stateName)
	f.expect(t, "-next key "+p256ID+": read ")
	bring(filePrefix + p256ID + ".pem")
	f.expect(t, "+published")
}

// TestFollowMountedSecret moves the link as kubelet does.
func TestFollowMountedSecret(t *testing.T) {
	t.Parallel()
	source, mount := newRing(t), t.TempDir()
	update := func(version string) {
		t.Helper()
		must(t, os.CopyFS(filepath.Join(mount, version), os.DirFS(source.path)))
		must(t, os.Symlink(version, filepath.Join(mount, "..data_tmp")))
		must(t, os.Rename(filepath.Join(mount, "..data_tmp"), filepath.Join(mount, "..data")))
		for name := range files(t, source) {
			if err := os.Symlink(filepath.Join("..data", name), filepath.Join(mount, name)); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
	}
	update("..1")
	f := follow(t, At(mount))
	publish(t, source, testkeys.P256())
	update("..2")
	must(t, os.RemoveAll(filepath.Join(mount, "..1")))
	f.expect(t, "+published")
}
