// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package relying

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

const issuer = "https://issuer.example.com"

func ringOf(t *testing.T, names ...string) *signing.Ring {
	t.Helper()
	var keys []signing.Key
	for i, name := range names {
		role := signing.Retired
		if i == 0 {
			role = signing.Next
		}
		keys = append(keys, public(name).As(role))
	}
	return signing.NewRing(keys...)
}

// documents are stored ones, by path.
type documents map[string]string

func TestPass(t *testing.T) {
	t.Parallel()
	const other = "https://other.example.com"
	both, onlyJWKS := []string{signing.JWKSPath, signing.DiscoveryPath}, []string{signing.JWKSPath}
	cases := map[string]struct {
		reason string
		issuer string   // of what is stored, "" if nothing is
		keys   []string // in what is stored
		part   string   // of what is stored, "" if both documents are
		page   string   // in the place of the discovery document
		over   bool     // --replace
		wrote  []string
		err    string
	}{
		"Empty":    {reason: "the JWKS comes first: the discovery document leads to it", wrote: both},
		"UpToDate": {reason: "an unchanged document is not written, so that its age stays", issuer: issuer, keys: []string{"a", "b"}},
		"Pruned": {
			reason: "a key that the ring does not have is removed", issuer: issuer, keys: []string{"a", "b", "c"}, wrote: onlyJWKS,
		},
		"TakenOver": {reason: "the user has said so", issuer: other, keys: []string{"c"}, over: true, wrote: both},
		"Interrupted": {
			reason: "a pass that ended between the two writes is continued", issuer: issuer, keys: []string{"a", "b"},
			part:  signing.JWKSPath,
			wrote: []string{signing.DiscoveryPath},
		},
		"AnotherIssuer": {
			reason: "the directory belongs to another cluster", issuer: other, keys: []string{"c"},
			err: `the documents of another issuer, "https://other.example.com", are there`,
		},
		"AnotherIssuersJWKS": {
			reason: "only a JWKS is there, without a key of ours", issuer: other, keys: []string{"c"}, part: signing.JWKSPath,
			err: "a JWKS with keys of another issuer is there",
		},
		"NoDocument": {reason: "a web page at the place of the document", page: "<html>", err: "is no discovery document"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, before := newDirectory(t), documents{}
			if c.issuer != "" {
				before = published(t, c.issuer, ringOf(t, c.keys...))
			}
			if c.page != "" {
				before[signing.DiscoveryPath] = c.page
			}
			for path, body := range before {
				if c.part == "" || path == c.part {
					testutil.Must(t, write(open(t, to), path, []byte(body)))
				}
			}
			want := stored(t, to)
			ring := ringOf(t, "a", "b")
			wrote, err := (&Documents{Issuer: issuer, Replace: c.over}).Publish(to, ring)
			testutil.Require(t, c.err == "" == (err == nil) && (err == nil || strings.Contains(err.Error(), c.err)),
				"%s: got error %v, want %q",
				c.reason, err, c.err)
			testutil.Expect(t, slices.Equal(wrote, c.wrote), "%s: wrote %q, want %q", c.reason, wrote, c.wrote)
			if c.err == "" {
				want = published(t, issuer, ring)
			}
			testutil.Check(t, c.reason, want, stored(t, to))
		})
	}
}

// TestJWKSThatIsNotWritten: a discovery document without its JWKS must not be published.
func TestJWKSThatIsNotWritten(t *testing.T) {
	t.Parallel()
	to := newDirectory(t)
	testutil.Must(t, os.Symlink("/nowhere", filepath.Join(string(to), "openid")))
	if wrote, err := (&Documents{Issuer: issuer}).Publish(to, ringOf(t, "a")); err == nil || len(wrote) > 0 || len(stored(t, to)) > 0 {
		t.Errorf("error %v, wrote %q; want an error and nothing written", err, wrote)
	}
}

// TestNotMounted: a directory that is not there may be a volume that is not mounted yet.
func TestNotMounted(t *testing.T) {
	t.Parallel()
	gone := newDirectory(t) + "/not-mounted"
	_, err := (&Documents{Issuer: issuer}).Publish(gone, ringOf(t, "a"))
	testutil.Expect(t, errors.Is(err, fs.ErrNotExist), "error %v, want that the directory does not exist", err)
	if _, err := os.Stat(string(gone)); err == nil {
		t.Error("the directory was made")
	}
}

// TestHostileDirectory: the owner of the directory makes a process of root read and write nothing else, nor wait without end.
func TestHostileDirectory(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(outside, document string) error{
		"Link":       os.Symlink,
		"LinkInside": func(_, document string) error { return os.Symlink("../../other", document) },
		"LinkToNothing": func(outside, document string) error {
			return errors.Join(os.Remove(outside), os.Symlink(outside, document))
		},
		"LinkedDirectory": func(outside, document string) error {
			dir := filepath.Dir(document)
			return errors.Join(os.Remove(dir), os.Symlink(filepath.Dir(outside), dir))
		},
		"Pipe":   func(_, document string) error { return syscall.Mkfifo(document, 0o666) },
		"Folder": func(_, document string) error { return os.Mkdir(document, 0o755) },
		"Huge":   func(_, document string) error { return os.WriteFile(document, make([]byte, maxDocument+1), 0o600) },
	} {
		for _, document := range []string{signing.JWKSPath, signing.DiscoveryPath} {
			t.Run(name+filepath.Dir(document), func(t *testing.T) {
				t.Parallel()
				to, outside := newDirectory(t), filepath.Join(t.TempDir(), filepath.Base(document))
				place := filepath.Join(string(to), document)
				testutil.Must(t, errors.Join(os.WriteFile(outside, []byte("{}"), 0o600), os.MkdirAll(filepath.Dir(place), 0o755),
					plant(outside, place)))
				want, _ := os.ReadFile(outside)
				wrote, err := (&Documents{Issuer: issuer, Replace: true}).Publish(to, ringOf(t, "a"))
				testutil.Expect(t, err != nil && len(wrote) == 0, "wrote %q, %v; want an error", wrote, err)
				got, _ := os.ReadFile(outside)
				testutil.Check(t, "the file outside of the directory", string(want), string(got))
			})
		}
	}
}

// TestPipeInBetween exchanges a document and a pipe that has a writer, at any time: a pass must not wait for it.
func TestPipeInBetween(t *testing.T) {
	t.Parallel()
	to := newDirectory(t)
	pass := func() { _, _ = (&Documents{Issuer: issuer, DryRun: true}).Publish(to, ringOf(t, "a")) }
	_, err := (&Documents{Issuer: issuer}).Publish(to, ringOf(t, "a"))
	testutil.Must(t, err)
	place, pipe := filepath.Join(string(to), signing.JWKSPath), filepath.Join(string(to), "pipe")
	testutil.Must(t, syscall.Mkfifo(pipe, 0o600))
	writer := testutil.Get(os.OpenFile(pipe, os.O_RDWR, 0))(t)
	defer func() { _ = writer.Close() }()
	var stop atomic.Bool
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for !stop.Load() {
			if err := unix.Renameat2(unix.AT_FDCWD, place, unix.AT_FDCWD, pipe, unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3000 {
			pass()
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("a pass waits for the writer of a pipe")
	}
	stop.Store(true)
	swapping.Wait()
}

// TestLongIssuer: a directory's owner does not fill a log.
func TestLongIssuer(t *testing.T) {
	t.Parallel()
	to := newDirectory(t)
	place := filepath.Join(string(to), signing.DiscoveryPath)
	testutil.Must(t, errors.Join(os.MkdirAll(filepath.Dir(place), 0o755),
		os.WriteFile(place, []byte(`{"issuer":"`+strings.Repeat(`\u0001`, 1<<17)+`"}`), 0o600)))
	_, err := (&Documents{Issuer: issuer}).Publish(to, ringOf(t, "a"))
	testutil.Expect(t, err != nil && len(err.Error()) <= 1000, "an error of %d bytes, want one of 1000 at most", len(fmt.Sprint(err)))
}

// TestKilled: what a killed process has left is in nobody's way, and a mode that a person has set stays.
func TestKilled(t *testing.T) {
	t.Parallel()
	to := newDirectory(t)
	place := filepath.Join(string(to), signing.JWKSPath)
	testutil.Must(t, errors.Join(os.MkdirAll(filepath.Dir(place), 0o755), os.WriteFile(place, []byte("{}"), 0o640),
		os.WriteFile(filepath.Join(filepath.Dir(place), ".jwks.new"), []byte("{"), 0o600)))
	testutil.Get((&Documents{Issuer: issuer, Replace: true}).Publish(to, ringOf(t, "a")))(t)
	left := testutil.Get(os.ReadDir(filepath.Dir(place)))(t)
	info := testutil.Get(os.Stat(place))(t)
	testutil.Expect(t, len(left) == 1 && info.Mode().Perm() == 0o640, "%d files, mode %v; want the document alone, with its mode",
		len(left),
		info.Mode())
}

func open(t *testing.T, d Directory) *os.Root {
	t.Helper()
	root := testutil.Get(d.open())(t)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func newDirectory(t *testing.T) Directory {
	t.Helper()
	return Directory(t.TempDir())
}

// published returns what a pass of another Publisher leaves.
func published(t *testing.T, issuer string, ring *signing.Ring) documents {
	t.Helper()
	to := newDirectory(t)
	testutil.Get((&Documents{Issuer: issuer}).Publish(to, ring))(t)
	return stored(t, to)
}

func stored(t *testing.T, from Directory) documents {
	t.Helper()
	found := documents{}
	for _, path := range []string{signing.JWKSPath, signing.DiscoveryPath} {
		body, err := os.ReadFile(filepath.Join(string(from), path))
		if err == nil {
			found[path] = string(body)
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return found
}

// public returns a key by a short name.
func public(name string) signing.PublicKey {
	pem := map[string]func() []byte{"a": testkeys.RSA2048, "b": testkeys.RSA2048Other, "c": testkeys.RSA3072}[name]
	return testkeys.Parse(pem()).Public()
}
