// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	ours := func(t *testing.T, names ...string) documents {
		t.Helper()
		return published(t, issuer, ringOf(t, names...))
	}
	both := []string{signing.JWKSPath, signing.DiscoveryPath}
	cases := map[string]struct {
		reason string
		stored func(t *testing.T) documents
		wrote  []string
		err    string
		over   bool // --replace
	}{
		"Empty": {
			reason: "the JWKS comes first: the discovery document leads to it",
			wrote:  both,
		},
		"UpToDate": {
			reason: "an unchanged document is not written, so that its age stays",
			stored: func(t *testing.T) documents { return ours(t, "a", "b") },
		},
		"Interrupted": {
			reason: "a pass that ended between the two writes is continued",
			stored: func(t *testing.T) documents {
				objects := ours(t, "a", "b")
				delete(objects, signing.DiscoveryPath)
				return objects
			},
			wrote: []string{signing.DiscoveryPath},
		},
		"Pruned": {
			reason: "a key that the ring does not have is removed",
			stored: func(t *testing.T) documents { return ours(t, "a", "b", "c") },
			wrote:  []string{signing.JWKSPath},
		},
		"AnotherIssuer": {
			reason: "the directory belongs to another cluster",
			stored: func(t *testing.T) documents { return published(t, "https://other.example.com", ringOf(t, "c")) },
			err:    `the documents of another issuer, "https://other.example.com", are there`,
		},
		"TakenOver": {
			reason: "the user has said so",
			stored: func(t *testing.T) documents { return published(t, "https://other.example.com", ringOf(t, "c")) },
			wrote:  both, over: true,
		},
		"AnotherIssuersJWKS": {
			reason: "only a JWKS is there, without a key of ours",
			stored: func(t *testing.T) documents {
				objects := ours(t, "c")
				delete(objects, signing.DiscoveryPath)
				return objects
			},
			err: "a JWKS with keys of another issuer is there",
		},
		"NoDocument": {
			reason: "a web page at the place of the document",
			stored: func(*testing.T) documents { return documents{signing.DiscoveryPath: "<html>"} },
			err:    "is no discovery document",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := newDirectory(t)
			if c.stored != nil {
				for path, body := range c.stored(t) {
					testutil.Must(t, to.write(path, []byte(body)))
				}
			}
			before := read(t, to)
			ring := ringOf(t, "a", "b")
			wrote, err := (&Publisher{Issuer: issuer, Replace: c.over}).Pass(to, ring)
			if c.err == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("%s: got error %v, want %q", c.reason, err, c.err)
			}
			if !slices.Equal(wrote, c.wrote) {
				t.Errorf("%s: wrote %q, want %q", c.reason, wrote, c.wrote)
			}
			want := before
			if c.err == "" {
				want = published(t, issuer, ring)
			}
			if diff := cmp.Diff(want, read(t, to)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// TestJWKSThatIsNotWritten: a discovery document without its JWKS must not be published.
func TestJWKSThatIsNotWritten(t *testing.T) {
	t.Parallel()
	to := newDirectory(t)
	testutil.Must(t, os.Symlink("nowhere", filepath.Join(string(to), "openid")))
	if wrote, err := (&Publisher{Issuer: issuer}).Pass(to, ringOf(t, "a")); err == nil || len(wrote) > 0 || len(read(t, to)) > 0 {
		t.Errorf("error %v, wrote %q; want an error and nothing written", err, wrote)
	}
}

// TestNotMounted: a directory that is not there may be a volume that is not mounted yet.
func TestNotMounted(t *testing.T) {
	t.Parallel()
	gone := newDirectory(t) + "/not-mounted"
	if _, err := (&Publisher{Issuer: issuer}).Pass(gone, ringOf(t, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want that the directory does not exist", err)
	}
	if _, err := os.Stat(string(gone)); err == nil {
		t.Error("the directory was made")
	}
}

func newDirectory(t *testing.T) Directory {
	t.Helper()
	return Directory(t.TempDir())
}

// published returns what a pass of another Publisher leaves.
func published(t *testing.T, issuer string, ring *signing.Ring) documents {
	t.Helper()
	to := newDirectory(t)
	_, err := (&Publisher{Issuer: issuer}).Pass(to, ring)
	testutil.Must(t, err)
	return read(t, to)
}

func read(t *testing.T, from Directory) documents {
	t.Helper()
	stored := documents{}
	for _, path := range []string{signing.JWKSPath, signing.DiscoveryPath} {
		body, err := os.ReadFile(from.file(path))
		if err == nil {
			stored[path] = string(body)
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return stored
}

// public returns a key by a short name.
func public(name string) signing.PublicKey {
	pem := map[string]func() []byte{"a": testkeys.RSA2048, "b": testkeys.RSA2048Other, "c": testkeys.RSA3072}[name]
	return testkeys.Parse(pem()).Public()
}
