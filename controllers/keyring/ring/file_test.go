// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
	"sa-controller-manager/signing/testkeys"
)

// TestReadRefuses damages a good ring in one way at a time.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	write := func(data []byte) func(*testing.T, *File) {
		return func(t *testing.T, f *File) { t.Helper(); testutil.Must(t, os.WriteFile(f.path, data, 0o600)) }
	}
	edit := func(old, replacement string) func(*testing.T, *File) {
		return func(t *testing.T, f *File) {
			t.Helper()
			data := string(bytesOf(t, f))
			testutil.Require(t, strings.Contains(data, old), "the ring has no %s", old)
			testutil.Must(t, os.WriteFile(f.path, []byte(strings.ReplaceAll(data, old, replacement)), 0o600))
		}
	}
	text := func(pem []byte) string { return strings.ReplaceAll(string(pem), "\n", `\n`) }
	public := func(pem []byte) []byte {
		return testutil.Get(signing.EncodePublicKeys(testkeys.Parse(pem).Public()))(t)
	}
	rsa, half := text(testkeys.Parse(testkeys.RSA2048()).PEM()), text(public(testkeys.P384()))
	other := testkeys.Parse(testkeys.RSA2048Other())
	cases := map[string]struct {
		reason string
		damage func(*testing.T, *File)
		want   string
	}{
		"no file": {"not there", func(t *testing.T, f *File) {
			t.Helper()
			testutil.Must(t, os.Remove(f.path))
		}, "there is no key ring: read "},
		"empty":      {"cut off", write(nil), "the key ring is not JSON"},
		"two values": {"which one counts?", edit("\n}\n", "\n}{}"), "the key ring is not JSON"},
		"newer schema": {
			"of a later release", edit(`"schemaVersion": 1`, `"schemaVersion": 2, "new": 1`),
			"use the release that wrote the state, or a later one",
		},
		"unknown member": {"may matter", edit(`"generation"`, `"x": 1, "generation"`), `unknown field "x"`},
		"wrong case":     {"may matter", edit(`"generation"`, `"Generation"`), `unknown field "Generation"`},
		"member twice": {
			"which one counts?", edit(`"generation": 1`, `"generation": 1, "generation": 2`), `duplicate field "generation"`,
		},
		"two active":  {"one signs", edit(`"role": "retired"`, `"role": "active"`), "2 of them are active"},
		"no PEM":      {"cut out", edit(rsa, ""), "pem of active key " + rsaID + ": found nothing, the file is empty"},
		"another key": {"mixed up", edit(rsa, text(other.PEM())), "it is another key: " + other.ID()},
		"public half": {
			"cannot sign", edit(rsa, text(public(testkeys.RSA2048()))), "found a public key; accepted is an unencrypted private key",
		},
		"two public keys":   {"which one?", edit(half, half+half), "it holds 2 keys, want one"},
		"another algorithm": {"mixed up", edit("RS256", "ES256"), "it is another key: " + rsaID + " (RS256)"},
		"a directory": {"odd", func(t *testing.T, f *File) {
			t.Helper()
			testutil.Must(t, os.Remove(f.path))
			testutil.Must(t, os.Mkdir(f.path, 0o700))
		}, "is a directory, not a file"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newRing(t)
			tc.damage(t, f)
			_, err := f.Read()
			testutil.Require(t, err != nil && strings.Contains(err.Error(), tc.want), "%s: got %v, want an error with %q", tc.reason, err,
				tc.want)
			testutil.Expect(t, strings.Contains(err.Error(), f.path) && !strings.Contains(err.Error(), "PRIVATE KEY"),
				"%s: error %q does not name the file, or quotes it", tc.reason, err)
			testutil.Expect(t, f.Update(1, rollback) != nil, "%s: a writer went to work on it", tc.reason)
		})
	}
}

// TestStaleGeneration also has a writer that was killed, whose private key is in a file of its own.
func TestStaleGeneration(t *testing.T) {
	t.Parallel()
	f := newRing(t)
	testutil.Must(t, os.WriteFile(filepath.Join(filepath.Dir(f.path), ".ring.json-1234"), testkeys.P256()[:20], 0o600))
	generation := read(t, f).Generation
	update(t, f, publish(testkeys.Parse(testkeys.P256())))
	before := bytesOf(t, f)
	want := fmt.Sprintf("generation %d was read and it has %d now", generation, generation+1)
	err := f.Update(generation, rotate)
	testutil.CheckError(t, "updated a stale generation", want, err)
	testutil.Expect(t, bytes.Equal(before, bytesOf(t, f)) && len(files(t, f)) == 1, "a stale or killed writer has left something")
}

func TestSecondWriterIsRefused(t *testing.T) {
	t.Parallel()
	f := newRing(t)
	err := f.Update(1, func(s State) (State, error) {
		err := At(f.path).Update(s.Generation, rollback)
		testutil.CheckError(t, "a second writer", "is being changed by another process", err)
		if _, err := At(f.path).Read(); err != nil {
			t.Errorf("a reader was kept waiting: %v", err)
		}
		return Next(s, KeyOf(testkeys.Parse(testkeys.RSA2048())), epoch) // refused
	})
	_, refused := errors.AsType[*Refusal](err)
	testutil.Require(t, refused, "the first writer got %v", err)
	update(t, f, publish(testkeys.Parse(testkeys.P256()))) // the lock is free again
}

// TestMountedSecret reads a directory as kubelet makes it and refuses to write there.
func TestMountedSecret(t *testing.T) {
	t.Parallel()
	source, mount := newRing(t), t.TempDir()
	testutil.Must(t, os.Rename(filepath.Dir(source.path), filepath.Join(mount, "..2026_11_21")))
	testutil.Must(t, os.Symlink("..2026_11_21", filepath.Join(mount, "..data")))
	testutil.Must(t, os.Symlink(filepath.Join("..data", "ring.json"), filepath.Join(mount, "ring.json")))
	f := At(filepath.Join(mount, "ring.json"))
	testutil.Expect(t, read(t, f).Active().ID == rsaID, "the ring of a mounted Secret is another one")
	for what, err := range map[string]error{
		"it counts as writable": f.Writable(),
		"published into it":     f.Update(1, publish(testkeys.Parse(testkeys.P256()))),
	} {
		if err == nil || !strings.Contains(err.Error(), "is read-only here (..data is a link") ||
			!strings.Contains(err.Error(), "the file that it is a copy of") {
			t.Errorf("a mounted Secret: %s: %v", what, err)
		}
	}
}

func TestInit(t *testing.T) {
	t.Parallel()
	ring := newRing(t)
	before := bytesOf(t, ring)
	if err := ring.Init(testkeys.Parse(testkeys.P256()), nil, nil, epoch); err == nil ||
		!strings.Contains(err.Error(), "is there already") {
		t.Errorf("made over a ring: %v", err)
	}
	testutil.Expect(t, bytes.Equal(before, bytesOf(t, ring)), "the ring that was there has changed")
	signs, other := testkeys.Parse(testkeys.RSA2048()), testkeys.Parse(testkeys.P256()).Public()
	once := At(filepath.Join(t.TempDir(), "ring.json")) // in a directory that is there
	testutil.Must(t, once.Init(signs, []signing.PublicKey{signs.Public(), other, other}, nil, epoch))
	keys := read(t, once).Keys
	testutil.Expect(t, len(keys) == 2, "the ring has %d keys, want 2", len(keys))
}

// TestGone: what leaves the ring is on record, whether it may have signed or not, and does not come back,
// also not by a verification key file. This is what kept a revoked key valid forever behind an HSM.
func TestGone(t *testing.T) {
	t.Parallel()
	f := newRing(t)
	update(t, f, publish(testkeys.Parse(testkeys.P256())), publish(testkeys.Parse(testkeys.P521())), pruneOf(p384ID), rotate,
		revokeOf(rsaID))
	var files []signing.PublicKey
	for i, gone := range []struct {
		pem    []byte
		reason Reason
	}{{testkeys.P256(), Withdrawn}, {testkeys.P384(), Pruned}, {testkeys.RSA2048(), Revoked}} {
		key := testkeys.Parse(gone.pem)
		if got := slices.Concat(read(t, f).Removed, read(t, f).Revoked)[i]; got != (Removed{ID: key.ID(), Digest: key.ID(),
			Reason: gone.reason}) {
			t.Errorf("on record: %+v, want key %s as %s", got, key.ID(), gone.reason)
		}
		if err := f.Update(read(t, f).Generation, publish(key)); err == nil ||
			!strings.Contains(err.Error(), "was "+string(gone.reason)+" before") {
			t.Errorf("a key that is on record as gone came back: %v", err)
		}
		other := key.Public()
		other.ID = "vendor/" + other.ID // the same key under the ID that a signer has chosen
		files = append(files, key.Public(), other)
	}
	keyring := signing.NewKeyring(read(t, f).Ring(), files...)
	keyring.SetVerifyOnly(files)
	if all := keyring.Keys().All(); len(all) != 1 || !keyring.Keys().Revoked(rsaID) || keyring.Keys().Revoked(p384ID) {
		t.Errorf("%d keys verify, want only the active one: %v", len(all), all)
	}
}

// TestPrevious: the ring before the last change is beside it. Put back, it does not bring a revoked key with it, because a
// copy and a change keep what the ring has revoked.
func TestPrevious(t *testing.T) {
	t.Parallel()
	f := newRing(t)
	before := bytesOf(t, f)
	previous, victim := At(f.path+previousSuffix), testutil.WriteFile(t, "victim", []byte("x"))
	testutil.Must(t, os.Symlink(victim, previous.path))
	update(t, f, publish(testkeys.Parse(testkeys.P256())))
	info, err := os.Lstat(previous.path)
	testutil.Expect(t, err == nil && info.Mode() == 0o600, "written through a link, or where others may read it: %v, %v", info, err)
	testutil.Expect(t, bytes.Equal(bytesOf(t, previous), before), "it is not the ring before the change")
	update(t, f, rotate)
	newest := bytesOf(t, previous)
	testutil.Must(t, os.WriteFile(f.path, before, 0o600)) // restored, and a leaked key is revoked
	update(t, f, func(s State) (State, error) {
		s.Revoked = []Removed{{ID: "x", Digest: "x", Reason: Revoked}}
		return s, nil
	})
	update(t, f, publish(testkeys.Parse(testkeys.P521())))
	testutil.Expect(t, bytes.Equal(bytesOf(t, previous), newest), "a newer ring than the one that is changed is lost")
	testutil.Must(t, os.WriteFile(f.path, newest, 0o600))
	update(t, f, rotate, revokeOf(rsaID))
	revoked := read(t, f)
	update(t, f, func(s State) (State, error) { s.Revoked = nil; return s, nil })
	if after := read(t, f); !slices.Equal(after.Revoked, revoked.Revoked) || len(after.Revoked) != 1 {
		t.Errorf("a change has lost a revocation: %+v", after.Revoked)
	}
	update(t, f, func(State) (State, error) { return read(t, previous), nil })
	testutil.Expect(t, signing.NewKeyring(read(t, f).Ring()).Keys().Revoked(rsaID), "an older ring brings the revoked key back")
	other := At(filepath.Join(t.TempDir(), "ring.json"))
	testutil.Must(t, os.WriteFile(other.path, before, 0o600))
	gone := []Removed{{ID: p384ID, Digest: p384ID, Reason: Revoked}}
	update(t, other, func(s State) (State, error) { return Import(s, read(t, other), gone) })
	testutil.Expect(t, slices.Equal(read(t, other).Revoked, gone), "the same ring with another revocation: %+v", read(t, other).Revoked)
}

// TestFork: a rotation on one node, and on the other one a rotation that was taken back. The second
// ring has the higher generation and lacks the key that signs in the first one.
func TestFork(t *testing.T) {
	t.Parallel()
	first, second := newRing(t), At(filepath.Join(t.TempDir(), "ring.json"))
	testutil.Must(t, importFrom(first, second))
	update(t, first, publish(testkeys.Parse(testkeys.P256())), rotate)
	update(t, second, publish(testkeys.Parse(testkeys.P521())), rotate, rollback)
	for from, to := range map[*File]*File{first: second, second: first} {
		before := bytesOf(t, to)
		err := importFrom(from, to)
		want := fmt.Sprintf("generation %d is forked from %d", read(t, from).Generation, read(t, to).Generation)
		testutil.CheckError(t, "imported a forked ring", want, err)
		testutil.Expect(t, bytes.Equal(before, bytesOf(t, to)), "a refused import has changed the ring")
	}

	followed := follow(t, first.path)
	join := func(s State) (State, error) { return Join(s, read(t, second), nil, epoch.Add(5*time.Hour)) }
	update(t, first, join)
	followed.expect(t, "+5")
	joined := read(t, first)
	for _, id := range []string{rsaID, p256ID, p384ID, testkeys.Parse(testkeys.P521()).ID()} {
		key, ok := joined.Key(id)
		testutil.Expect(t, ok && (key.Role == signing.Active) == (id == p256ID), "after the join key %s is %q", id, key.Role)
	}
	if err := importFrom(first, second); err != nil {
		t.Errorf("the joined ring is not newer than the other one: %v", err)
	}
	if err := first.Update(read(t, first).Generation, join); err == nil || !strings.Contains(err.Error(), "are not forked") {
		t.Errorf("joined twice: %v", err)
	}
	foreign := At(filepath.Join(t.TempDir(), "ring.json"))
	testutil.Must(t, foreign.Init(testkeys.Parse(testkeys.P256Other()), nil, nil, epoch))
	_, err := Join(read(t, first), read(t, foreign), nil, epoch)
	testutil.Expect(t, err != nil && strings.Contains(err.Error(), "no version and no key in common"),
		"joined the ring of another cluster: %v", err)
}

// TestImport brings copies of a ring to another node.
func TestImport(t *testing.T) {
	t.Parallel()
	source, copied := newRing(t), At(filepath.Join(t.TempDir(), "pki", "ring.json"))
	bring := func(from *File, want bool) {
		t.Helper()
		err := importFrom(from, copied)
		testutil.Expect(t, IsDone(err) != want && (!want || err == nil), "error %v; changed: want %t", err, want)
		testutil.Expect(t, bytes.Equal(bytesOf(t, from), bytesOf(t, copied)), "the copy is another ring")
	}
	bring(source, true)
	bring(source, false)
	old := At(filepath.Join(t.TempDir(), "old.json"))
	testutil.Must(t, os.WriteFile(old.path, bytesOf(t, source), 0o600))
	update(t, source, publish(testkeys.Parse(testkeys.P256())), rotate)
	testutil.Must(t, os.Chmod(copied.path, 0o644)) // as cp makes it
	bring(source, true)
	testutil.Check(t, "files", map[string]fs.FileMode{"ring.json": 0o600}, files(t, copied))

	damaged := At(filepath.Join(t.TempDir(), "damaged.json"))
	testutil.Must(t, os.WriteFile(damaged.path, bytesOf(t, source)[:500], 0o600))
	for from, want := range map[*File]string{
		old: "generation 1 is older than 3", damaged: "the key ring is not JSON",
	} {
		err := importFrom(from, copied)
		testutil.CheckError(t, "error", want, err)
	}
	bring(source, false)
}

// TestDryRun: every change is refused as usual or can be read, and nothing is on the disk.
func TestDryRun(t *testing.T) {
	t.Parallel()
	f := newRing(t)
	before := testutil.Get(os.ReadFile(f.path))(t)
	dry := f.DryRun()
	update(t, dry, publish(testkeys.Parse(testkeys.P256())), rotate)
	id := read(t, dry).Active().ID
	testutil.Expect(t, id == p256ID, "key %s would sign, want %s", id, p256ID)
	testutil.Expect(t, f.DryRun().Update(7, rotate) != nil, "a stale change is taken")
	fresh := At(filepath.Join(t.TempDir(), "keys", "ring.json"))
	testutil.Must(t, fresh.DryRun().Init(testkeys.Parse(testkeys.RSA2048()), nil, nil, epoch))
	testutil.Must(t, importFrom(f, fresh.DryRun()))
	_, err := os.Stat(filepath.Dir(fresh.path))
	testutil.Expect(t, errors.Is(err, fs.ErrNotExist), "its directory is there, or %v", err)
	if after, err := os.ReadFile(f.path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file has changed, or %v", err)
	}
}

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
	return testutil.Get(f.Read())(t)
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

// importFrom is keys import of one file into another one, which may be missing.
func importFrom(from, to *File) error {
	copied, err := from.Read()
	if err != nil {
		return err
	}
	present, err := to.Read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return to.Update(present.Generation, func(s State) (State, error) { return Import(s, copied, nil) })
}

func publish(key *signing.PrivateKey) transition {
	return func(s State) (State, error) { return Next(s, KeyOf(key), epoch) }
}

func rotate(s State) (State, error) { return Rotate(s, nil, epoch.Add(time.Hour)) }

func rollback(s State) (State, error) { return Rollback(s, epoch.Add(3*time.Hour)) }

func pruneOf(id string) transition {
	return func(s State) (State, error) { return Prune(s, id, Usage{}, epoch.Add(1000*time.Hour), policy) }
}

func revokeOf(id string) transition {
	return func(s State) (State, error) {
		return Revoke(s, []Removed{{ID: id, Digest: id, Reason: Revoked}}, nil, nil, epoch)
	}
}

// files lists the directory but for the lock, with modes.
func files(t testing.TB, f *File) map[string]fs.FileMode {
	t.Helper()
	entries := testutil.Get(os.ReadDir(filepath.Dir(f.path)))(t)
	all := map[string]fs.FileMode{}
	for _, entry := range entries {
		info := testutil.Get(entry.Info())(t)
		if !slices.Contains([]string{lockSuffix, previousSuffix}, strings.TrimPrefix(entry.Name(), filepath.Base(f.path))) {
			all[entry.Name()] = info.Mode()
		}
	}
	return all
}

// bytesOf is the content of the file.
func bytesOf(t testing.TB, f *File) []byte {
	t.Helper()
	return testutil.Get(os.ReadFile(f.path))(t)
}

// followed is a file under Watch, with the calls of its callbacks.
type followed struct {
	*Store

	told chan string // "+" and the generation when accepted, "-" and the error when refused
}

func follow(t *testing.T, path string) *followed {
	t.Helper()
	store := testutil.Get(Open(path, nil, reload.Options{Settle: 20 * time.Millisecond, Poll: 200 * time.Millisecond}))(t)
	f := &followed{Store: store, told: make(chan string, 100)}
	testutil.Start(t, func(ctx context.Context) error {
		store.Watch(ctx, func(*signing.Ring) { f.told <- "+" + strconv.FormatInt(store.State().Generation, 10) },
			func(err error) { f.told <- "-" + err.Error() })
		return nil
	})
	return f
}

// expect waits for the next thing told.
func (f *followed) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case told := <-f.told:
		testutil.Require(t, strings.Contains(told, want), "told %q, want %q", told, want)
	case <-time.After(15 * time.Second):
		t.Fatalf("not told %q within 15 s", want)
	}
	refused := f.Status().Refused
	testutil.Expect(t, (refused != nil) == strings.HasPrefix(want, "-"), "after %q the file counts as refused: %v", want, refused)
}

// restored waits until the file has the content in use again, which is not reported.
func (f *followed) restored(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); f.Status().Refused != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still refused: %v", f.Status().Refused)
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	ring := newRing(t)
	f := follow(t, ring.path)
	update(t, ring, publish(testkeys.Parse(testkeys.P256())))
	f.expect(t, "+2")
	old := bytesOf(t, ring)
	update(t, ring, rotate)
	f.expect(t, "+3")
	var ids []string
	for _, key := range f.Load().All() {
		ids = append(ids, key.ID)
	}
	testutil.Check(t, "keys: the active one, and the last retired first", []string{p256ID, rsaID, p384ID}, ids)
	present := bytesOf(t, ring)

	testutil.Must(t, atomicfile.Write(ring.path, old, 0o600))
	f.expect(t, "-"+ring.path+": generation 2 is older than 3, which is in use")
	testutil.Expect(t, f.Load().ActiveID() == p256ID, "an old copy took the key back")
	testutil.Must(t, atomicfile.Write(ring.path, []byte("garbage"), 0o600))
	f.expect(t, "-"+ring.path+": the key ring is not JSON")
	testutil.Must(t, atomicfile.Write(ring.path, present, 0o600))
	f.restored(t)

	other := strings.Replace(string(present), `12:00:00Z`, `12:30:00Z`, 1)
	testutil.Must(t, atomicfile.Write(ring.path, []byte(other), 0o600))
	f.expect(t, "-"+ring.path+": history ends with version")
	testutil.Must(t, atomicfile.Write(ring.path, present, 0o600))
	f.restored(t)

	got := f.Status().Detail
	testutil.Expect(t, got == "generation 3, without a next key", "the status is %q", got)
	update(t, ring, publish(testkeys.Parse(testkeys.P521())))
	f.expect(t, "+4")
	if got := f.Status().Detail; got != "generation 4" {
		t.Errorf("the status is %q", got)
	}
	f.Apply(Desired{Active: testkeys.Parse(testkeys.P521()).ID()})
	f.expect(t, "+4")
	if got := f.Load().ActiveID(); got != testkeys.Parse(testkeys.P521()).ID() {
		t.Errorf("%s signs, although another ring has the next key active", got)
	}
}

// FuzzRead reads any content. What is accepted must be a ring that signs, of the keys that the file
// names, and read again as it was; what is refused must be refused without a word of a PEM.
func FuzzRead(f *testing.F) {
	ring := newRing(f)
	seed := func() {
		data := bytesOf(f, ring)
		f.Add(data)
		f.Add(data[:len(data)-20])
		f.Add(bytes.ReplaceAll(data, []byte("RS256"), []byte("ES256")))
		f.Add(bytes.ReplaceAll(data, []byte("retired"), []byte("active")))
		f.Add(bytes.ReplaceAll(data, []byte("publicOnly"), []byte("x")))
	}
	seed()
	for _, next := range []transition{pruneOf(p384ID), publish(testkeys.Parse(testkeys.P256())), rotate, rollback, revokeOf(p256ID)} {
		update(f, ring, next)
		seed()
	}
	secret := string(testkeys.Parse(testkeys.P256()).PEM()[60:100])
	f.Fuzz(func(t *testing.T, data []byte) {
		state, err := decode(data, nil)
		if err != nil {
			testutil.Require(t, !strings.Contains(err.Error(), secret), "the error quotes a key: %v", err)
			return
		}
		// What is written need not be what was read, such as 12:00+00:00 for 12:00Z; what is read
		// then must be.
		once := testutil.Get(encode(state))(t)
		again := testutil.Get(decode(once, nil))(t)
		if twice, err := encode(again); err != nil || !bytes.Equal(once, twice) || again.Version() != state.Version() {
			t.Fatalf("reads otherwise than it was written:\n%s", once)
		}
		keyring := signing.NewKeyring(state.Ring())
		got, want := len(keyring.Keys().All()), len(state.Keys)
		testutil.Require(t, got == want, "%d keys verify, and the file names %d", got, want)
		for _, key := range state.Keys {
			if public, ok := keyring.Keys().Lookup(key.ID); !ok || public.Algorithm != key.Algorithm ||
				keyring.Ring().Role(key.ID) != key.Role {
				t.Fatalf("%s key %s does not verify, or with another algorithm or role", key.Role, key.ID)
			}
			testutil.Require(t, (key.Private == nil) == key.PublicOnly, "%s key %s is public only: %t, with the private half %v", key.Role,
				key.ID,
				key.PublicOnly, key.Private)
		}
		if _, _, err := keyring.Sign(t.Context(), signing.JWTHeader, "e30"); err != nil {
			t.Fatalf("the ring cannot sign: %v", err)
		}
	})
}
