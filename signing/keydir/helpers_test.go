// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/rotation"
	"sa-controller-manager/signing/testkeys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	epoch  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	policy = rotation.Policy{CacheAge: time.Hour, HoldDown: 24 * time.Hour, TokenLifetime: 48 * time.Hour}
)

func pair(t testing.TB, data []byte) *Pair {
	t.Helper()
	p, err := Import(data)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, d *Dir) *Snapshot {
	t.Helper()
	snapshot, err := d.Read()
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

// newRing makes a ring in which an RSA key signs and a public key verifies.
func newRing(t testing.TB) *Dir {
	t.Helper()
	d := At(filepath.Join(t.TempDir(), "keys"))
	_, err := d.Init(pair(t, testkeys.RSA2048()), []signing.PublicKey{pair(t, testkeys.P384()).Public()}, epoch, policy)
	must(t, err)
	return d
}

// update makes a transition that must be made, on the ring as it is.
func update(t testing.TB, d *Dir, transition func(rotation.State) (rotation.State, error)) {
	t.Helper()
	_, err := d.Update(read(t, d).State.Generation, transition)
	must(t, err)
}

func publish(t testing.TB, d *Dir, data []byte) {
	t.Helper()
	_, err := d.Publish(read(t, d).State.Generation, pair(t, data), epoch, policy)
	must(t, err)
}

func activate(s rotation.State) (rotation.State, error) {
	return rotation.Activate(s, epoch.Add(time.Hour), policy, false)
}

func complete(s rotation.State) (rotation.State, error) {
	return rotation.Complete(s, epoch.Add(2*time.Hour), policy)
}

func rollback(s rotation.State) (rotation.State, error) {
	return rotation.Rollback(s, epoch.Add(3*time.Hour), policy)
}

func pruneOf(id string) func(rotation.State) (rotation.State, error) {
	return func(s rotation.State) (rotation.State, error) {
		return rotation.Prune(s, id, rotation.Usage{}, epoch.Add(1000*time.Hour), policy, false)
	}
}

// files lists a directory but for the lock, with modes.
func files(t testing.TB, d *Dir) map[string]fs.FileMode {
	t.Helper()
	entries, err := os.ReadDir(d.path)
	must(t, err)
	all := map[string]fs.FileMode{}
	for _, entry := range entries {
		info, err := entry.Info()
		must(t, err)
		if entry.Name() != lockName {
			all[entry.Name()] = info.Mode()
		}
	}
	return all
}
