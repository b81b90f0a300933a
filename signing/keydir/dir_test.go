// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/rotation"
	"sa-controller-manager/signing/testkeys"
)

// TestRead reads a ring in which every role occurs.
func TestRead(t *testing.T) {
	t.Parallel()
	d := newRing(t)
	publish(t, d, testkeys.P256())
	update(t, d, activate)
	update(t, d, complete)
	publish(t, d, testkeys.P521())
	s := read(t, d)
	ring := signing.NewKeyring(nil)
	ring.Set(s.Ring())
	var ids []string
	for _, key := range ring.Keys().All() {
		ids = append(ids, key.ID)
	}
	want := []string{p256ID, pair(t, testkeys.P521()).Public().ID, rsaID, p384ID}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("keys of the ring: -want +got:\n%s", diff)
	}
	if ring.Ring().Active().ID() != p256ID || ring.Ring().Next().ID() != want[1] {
		t.Errorf("%v signs, %v is next", ring.Ring().Active(), ring.Ring().Next())
	}
	for _, key := range s.State.Keys {
		if public, ok := s.PublicKey(key.ID); !ok || public.ID != key.ID {
			t.Errorf("no public key for %s", key.ID)
		}
	}
	for name, mode := range files(t, d) {
		if mode != 0o600 {
			t.Errorf("%s has mode %v", name, mode)
		}
	}
}

// TestReadRefuses damages a good ring in one way at a time.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	write := func(name string, data []byte) func(*testing.T, *Dir) {
		return func(t *testing.T, d *Dir) {
			t.Helper()
			must(t, os.WriteFile(filepath.Join(d.path, name), data, 0o600))
		}
	}
	edit := func(old, replacement string) func(*testing.T, *Dir) {
		return func(t *testing.T, d *Dir) {
			t.Helper()
			data, err := os.ReadFile(d.statePath())
			must(t, err)
			if !strings.Contains(string(data), old) {
				t.Fatalf("the state has no %s", old)
			}
			must(t, os.WriteFile(d.statePath(), []byte(strings.ReplaceAll(string(data), old, replacement)), 0o600))
		}
	}
	remove := func(name string) func(*testing.T, *Dir) {
		return func(t *testing.T, d *Dir) { t.Helper(); must(t, os.Remove(filepath.Join(d.path, name))) }
	}
	keyFile := func(id string) string { return filePrefix + id + ".pem" }
	publicOnly, err := EncodePublic(pair(t, testkeys.RSA2048()).Public())
	must(t, err)
	cases := map[string]struct {
		reason string
		damage func(*testing.T, *Dir)
		want   string
	}{
		"no state":          {"not a ring", remove(stateName), "holds no key ring: there is no ring.json in it"},
		"empty state":       {"cut off", write(stateName, nil), "the state is not JSON"},
		"no JSON":           {"garbage", write(stateName, []byte("{")), "the state is not JSON"},
		"newer schema":      {"of a later release", edit(`"schemaVersion": 1`, `"schemaVersion": 2, "new": 1`), "use the release that wrote the state, or a later one"},
		"unknown member":    {"may matter", edit(`"generation"`, `"x": 1, "generation"`), `unknown field "x"`},
		"member twice":      {"which one counts?", edit(`"generation": 1`, `"generation": 1, "generation": 2`), `duplicate field "generation"`},
		"two active":        {"one signs", edit(`"role": "retired"`, `"role": "active"`), "must be able to sign"},
		"none active":       {"one signs", edit(`"role": "active"`, `"role": "retired"`), "must have retiredAt"},
		"path in a file":    {"not out of here", edit(`"file": "`, `"file": "../`), "is not the plain name of a .pem file"},
		"key file missing":  {"half copied", remove(keyFile(rsaID)), "active key " + rsaID + ": read "},
		"key file empty":    {"half copied", write(keyFile(rsaID), nil), "found nothing, the file is empty"},
		"another key":       {"mixed up", write(keyFile(rsaID), testkeys.P256()), "it holds another key: " + p256ID},
		"public half":       {"cannot sign", write(keyFile(rsaID), publicOnly), "found a public key; accepted is an unencrypted private key"},
		"two public keys":   {"which one?", write(keyFile(p384ID), append(publicOnly, publicOnly...)), "it holds 2 keys, want one"},
		"another algorithm": {"mixed up", edit("RS256", "ES256"), "it holds another key: " + rsaID + " (RS256)"},
		"state is directory": {"odd", func(t *testing.T, d *Dir) {
			t.Helper()
			must(t, os.Remove(d.statePath()))
			must(t, os.Mkdir(d.statePath(), 0o700))
		}, "is a directory, not a file"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newRing(t)
			tc.damage(t, d)
			s, err := d.Read()
			if err == nil || s != nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%s: got %v and %v, want an error with %q", tc.reason, s, err, tc.want)
			}
			if !strings.Contains(err.Error(), d.path) || strings.Contains(err.Error(), "PRIVATE KEY") {
				t.Errorf("%s: error %q does not name the directory, or quotes a file", tc.reason, err)
			}
			if _, err := d.Update(1, rollback); err == nil {
				t.Errorf("%s: a writer went to work on it", tc.reason)
			}
		})
	}
}

func TestStaleGeneration(t *testing.T) {
	t.Parallel()
	d := newRing(t)
	seen := read(t, d).State.Generation
	publish(t, d, testkeys.P256())
	before := files(t, d)
	var stale *StaleError
	if _, err := d.Update(seen, activate); !errors.As(err, &stale) || stale.Seen != seen || stale.Now != read(t, d).State.Generation {
		t.Errorf("updated on a stale look: %v", err)
	}
	if _, err := d.Publish(seen, pair(t, testkeys.P521()), epoch, policy); !errors.As(err, &stale) {
		t.Errorf("published on a stale look: %v", err)
	}
	if _, err := d.Update(read(t, d).State.Generation, func(s rotation.State) (rotation.State, error) { return s, nil }); !errors.As(err, &stale) {
		t.Errorf("a state that does not follow was written: %v", err)
	}
	if diff := cmp.Diff(before, files(t, d)); diff != "" {
		t.Errorf("stale writers left something: -want +got:\n%s", diff)
	}
}

func TestSecondWriterIsRefused(t *testing.T) {
	t.Parallel()
	d := newRing(t)
	_, err := d.Update(read(t, d).State.Generation, func(s rotation.State) (rotation.State, error) {
		_, err := At(d.path).Update(s.Generation, rollback)
		var locked *LockedError
		if !errors.As(err, &locked) || locked.PID != os.Getpid() || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
			t.Errorf("a second writer was told %v", err)
		}
		if _, err := At(d.path).Read(); err != nil {
			t.Errorf("a reader was kept waiting: %v", err)
		}
		return rotation.Publish(s, rotation.Key{ID: rsaID}, epoch, policy) // refused
	})
	if _, refused := errors.AsType[*rotation.Refusal](err); !refused {
		t.Fatalf("the first writer was told %v", err)
	}
	publish(t, d, testkeys.P256()) // the lock is free again
}

// TestMountedSecret reads a directory as kubelet makes it and refuses to write there.
func TestMountedSecret(t *testing.T) {
	t.Parallel()
	source, mount := newRing(t), t.TempDir()
	must(t, os.Rename(source.path, filepath.Join(mount, "..2026_11_21")))
	must(t, os.Symlink("..2026_11_21", filepath.Join(mount, "..data")))
	entries, err := os.ReadDir(filepath.Join(mount, "..data"))
	must(t, err)
	for _, entry := range entries {
		must(t, os.Symlink(filepath.Join("..data", entry.Name()), filepath.Join(mount, entry.Name())))
	}
	d := At(mount)
	if read(t, d).Active.ID() != rsaID {
		t.Error("the ring of a mounted Secret is another one")
	}
	var readOnly *ReadOnlyError
	if err := d.Writable(); !errors.As(err, &readOnly) {
		t.Errorf("a mounted Secret counts as writable: %v", err)
	}
	_, err = d.Publish(1, pair(t, testkeys.P256()), epoch, policy)
	if !errors.As(err, &readOnly) || !strings.Contains(err.Error(), "the directory that it is a copy of") {
		t.Errorf("published into a mounted Secret: %v", err)
	}
}

func TestInitRefuses(t *testing.T) {
	t.Parallel()
	foreign, ring := t.TempDir(), newRing(t)
	must(t, os.WriteFile(filepath.Join(foreign, "sa.key"), nil, 0o600))
	lost := newRing(t)
	must(t, os.Remove(lost.statePath()))
	for path, want := range map[string]string{
		foreign:   "is not empty: sa.key is in it",
		ring.path: "holds a key ring already",
		lost.path: "is not empty: key-",
	} {
		before := files(t, At(path))
		_, err := At(path).Init(pair(t, testkeys.P256()), nil, epoch, policy)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
		if diff := cmp.Diff(before, files(t, At(path))); diff != "" {
			t.Errorf("-before +after:\n%s", diff)
		}
	}
}

func TestInitTakesTheSigningKeyOnce(t *testing.T) {
	t.Parallel()
	d := At(t.TempDir()) // empty and there
	signs := pair(t, testkeys.RSA2048())
	_, err := d.Init(signs, []signing.PublicKey{signs.Public(), pair(t, testkeys.P256()).Public(), pair(t, testkeys.P256()).Public()}, epoch, policy)
	must(t, err)
	if keys := read(t, d).State.Keys; len(keys) != 2 {
		t.Errorf("the ring has %d keys, want 2", len(keys))
	}
}
