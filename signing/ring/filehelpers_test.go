// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

func TestMain(m *testing.M) { testutil.Main(m) }

var (
	epoch  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	policy = Policy{CacheAge: time.Hour, TokenLifetime: 48 * time.Hour}
)

const (
	rsaID  = "08iLkgQ_1toJ0m7DOaK-qM-kpePj85P8ak2auCJDaGY"
	p256ID = "LswSX_8-TRzY3vSJg2wtCj6KrsbIeMNUDdtbd2GtVO4"
	p384ID = "ndNms7FPZ8s0S_IEu2oMbq1NJEIdqHD7aJWnSarOhh4"
)

func read(t testing.TB, f *File) State {
	t.Helper()
	state, err := f.Read()
	testutil.Must(t, err)
	return state
}

// newRing makes a ring in which an RSA key signs, a public key verifies and no key is next.
func newRing(t testing.TB) *File {
	t.Helper()
	f := At(filepath.Join(t.TempDir(), "keys", "ring.json"))
	testutil.Must(t, f.Init(testkeys.Parse(testkeys.RSA2048()), []signing.PublicKey{testkeys.Parse(testkeys.P384()).Public()}, nil, epoch))
	return f
}

type transition = func(State) (State, error)

// update makes transitions that must be made, on the ring as it is.
func update(t testing.TB, f *File, transitions ...transition) {
	t.Helper()
	for _, transition := range transitions {
		testutil.Must(t, f.Update(read(t, f).Generation, transition))
	}
}

func publish(key *signing.PrivateKey) transition {
	return func(s State) (State, error) { return Next(s, KeyOf(key), epoch) }
}

func rotate(s State) (State, error) { return Rotate(s, nil, epoch.Add(time.Hour)) }

func rollback(s State) (State, error) { return Rollback(s, nil, epoch.Add(3*time.Hour)) }

func pruneOf(id string) transition {
	return func(s State) (State, error) { return Prune(s, id, Usage{}, epoch.Add(1000*time.Hour), policy) }
}

func revokeOf(id string) transition {
	return func(s State) (State, error) { return Revoke(s, []string{id}, nil, nil, epoch) }
}

// files lists the directory but for the lock, with modes.
func files(t testing.TB, f *File) map[string]fs.FileMode {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(f.path))
	testutil.Must(t, err)
	all := map[string]fs.FileMode{}
	for _, entry := range entries {
		info, err := entry.Info()
		testutil.Must(t, err)
		if entry.Name() != filepath.Base(f.path)+lockSuffix {
			all[entry.Name()] = info.Mode()
		}
	}
	return all
}

// bytesOf is the content of the file.
func bytesOf(t testing.TB, f *File) []byte {
	t.Helper()
	data, err := os.ReadFile(f.path)
	testutil.Must(t, err)
	return data
}
