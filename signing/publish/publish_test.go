// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

const issuer = "https://issuer.example.com"

// memory is a destination that records what is written, in order.
type memory struct {
	objects map[string]*Object
	wrote   []string
	fail    map[string]error
}

func (m *memory) Get(_ context.Context, path string) (*Object, error) { return m.objects[path], nil }

func (m *memory) Put(_ context.Context, path string, old *Object, body []byte, stamp Stamp, _ Headers) error {
	if err := m.fail[path]; err != nil {
		return err
	}
	if old != m.objects[path] {
		return ErrConflict
	}
	m.objects[path] = &Object{Body: body, Stamp: stamp}
	m.wrote = append(m.wrote, path)
	return nil
}

func (m *memory) Verify(context.Context) error { return nil }
func (m *memory) PerHost() bool                { return false }
func (m *memory) String() string               { return "memory" }

func ringOf(t *testing.T, generation int64, past signing.Past, names ...string) *signing.Ring {
	t.Helper()
	var keys []signing.Key
	for i, name := range names {
		role := signing.Retired
		if i == 0 {
			role = signing.Next
		}
		keys = append(keys, public(name).As(role))
	}
	return signing.NewRing(generation, keys...).WithPast(past)
}

func TestPass(t *testing.T) {
	t.Parallel()
	ours := func(t *testing.T, generation int64, names ...string) map[string]*Object {
		t.Helper()
		return published(t, issuer, ringOf(t, generation, signing.Past{}, names...))
	}
	both := []string{signing.JWKSPath, signing.DiscoveryPath}
	cases := map[string]struct {
		reason  string
		stored  func(t *testing.T) map[string]*Object
		past    signing.Past
		wrote   []string
		foreign []string
		err     string
		over    bool // --take-over
	}{
		"Empty": {
			reason: "the JWKS comes first: the discovery document leads to it",
			wrote:  both,
		},
		"UpToDate": {
			reason: "an unchanged document is not written, so that its ETag and age stay",
			stored: func(t *testing.T) map[string]*Object { return ours(t, 3, "a", "b") },
		},
		"Older": {
			reason: "the JWKS has a key less",
			stored: func(t *testing.T) map[string]*Object { return ours(t, 2, "b") },
			wrote:  []string{signing.JWKSPath},
		},
		"Interrupted": {
			reason: "a pass that ended between the two writes is continued",
			stored: func(t *testing.T) map[string]*Object {
				objects := ours(t, 3, "a", "b")
				delete(objects, signing.DiscoveryPath)
				return objects
			},
			wrote: []string{signing.DiscoveryPath},
		},
		"Pruned": {
			reason: "a key that the ring has pruned is removed, and is not foreign",
			stored: func(t *testing.T) map[string]*Object { return ours(t, 2, "a", "b", "c") },
			past:   signing.Past{Pruned: []string{public("c").ID}},
			wrote:  []string{signing.JWKSPath},
		},
		"Foreign": {
			reason:  "a key that was never ours is removed and reported: its owner could forge tokens",
			stored:  func(t *testing.T) map[string]*Object { return ours(t, 2, "a", "b", "c") },
			wrote:   []string{signing.JWKSPath},
			foreign: []string{public("c").ID},
		},
		"Newer": {
			reason: "a host with an old copy of the ring must not take a key back",
			stored: func(t *testing.T) map[string]*Object { return ours(t, 4, "a", "b", "c") },
			err:    "generation 4 of the key ring is published, and this host has generation 3",
		},
		"Forked": {
			reason: "two copies of one generation would replace each other again and again",
			stored: func(t *testing.T) map[string]*Object { return ours(t, 3, "a", "c") },
			err:    "another key ring of the same generation 3",
		},
		"AnotherIssuer": {
			reason: "the bucket belongs to another cluster",
			stored: func(t *testing.T) map[string]*Object {
				return published(t, "https://other.example.com", ringOf(t, 1, signing.Past{}, "c"))
			},
			err: `the documents of another issuer, "https://other.example.com", are there`,
		},
		"TakenOver": {
			reason: "the user has said so; the generation is that of another ring",
			stored: func(t *testing.T) map[string]*Object {
				return published(t, "https://other.example.com", ringOf(t, 9, signing.Past{}, "c"))
			},
			wrote: both, foreign: []string{public("c").ID}, over: true,
		},
		"NewerOfOurs": {
			reason: "--take-over is not for the same issuer",
			stored: func(t *testing.T) map[string]*Object { return ours(t, 4, "a", "b", "c") },
			err:    "generation 4 of the key ring is published", over: true,
		},
		"AnotherIssuersJWKS": {
			reason: "only a JWKS is there, without a key of ours",
			stored: func(t *testing.T) map[string]*Object {
				objects := ours(t, 1, "c")
				delete(objects, signing.DiscoveryPath)
				return objects
			},
			err: "a JWKS with keys of another issuer is there",
		},
		"NoDocument": {
			reason: "a web page at the place of the document",
			stored: func(*testing.T) map[string]*Object {
				return map[string]*Object{signing.DiscoveryPath: {Body: []byte("<html>")}}
			},
			err: "is no discovery document",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := &memory{objects: map[string]*Object{}}
			if c.stored != nil {
				to.objects = c.stored(t)
			}
			ring := ringOf(t, 3, c.past, "a", "b")
			result, err := (&Publisher{Issuer: issuer, TakeOver: c.over}).Pass(t.Context(), to, ring)
			if c.err == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("%s: got error %v, want %q", c.reason, err, c.err)
			}
			if !slices.Equal(to.wrote, c.wrote) || !slices.Equal(result.Wrote, c.wrote) {
				t.Errorf("%s: wrote %q and reports %q, want %q", c.reason, to.wrote, result.Wrote, c.wrote)
			}
			if !slices.Equal(result.Foreign, c.foreign) {
				t.Errorf("%s: foreign keys %q, want %q", c.reason, result.Foreign, c.foreign)
			}
		})
	}
}

// TestJWKSThatIsNotWritten: a discovery document without its JWKS must not be published.
func TestJWKSThatIsNotWritten(t *testing.T) {
	t.Parallel()
	to := &memory{objects: map[string]*Object{}, fail: map[string]error{signing.JWKSPath: errors.New("read only")}}
	if _, err := (&Publisher{Issuer: issuer}).Pass(t.Context(), to, ringOf(t, 1, signing.Past{}, "a")); err == nil || len(to.wrote) > 0 {
		t.Errorf("error %v, wrote %q; want an error and nothing written", err, to.wrote)
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	to, err := Parse("file://" + dir)
	if err != nil {
		t.Fatal(err)
	}
	publisher := &Publisher{Issuer: issuer, MaxAge: time.Minute}
	ring := ringOf(t, 1, signing.Past{}, "a")
	for pass, want := range []int{2, 0} {
		result, err := publisher.Pass(t.Context(), to, ring)
		if err != nil || len(result.Wrote) != want {
			t.Fatalf("pass %d: wrote %q, error %v; want %d documents", pass, result.Wrote, err, want)
		}
	}
	gone, err := Parse("file://" + dir + "/not-mounted")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := publisher.Pass(t.Context(), gone, ring); err == nil {
		t.Error("a directory that is not there was made: it may be a volume that is not mounted yet")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"file:///srv/keys": "",
		"s3://bucket":      "",
		"s3://bucket/prefix?endpoint=s3.example.com:9000": "",
		"/srv/keys":             "must be file:///DIRECTORY or s3://BUCKET/PREFIX",
		"file://host/srv":       "absolute path",
		"file:///srv?x=1":       "absolute path",
		"https://bucket/prefix": "must be file:///DIRECTORY or s3://BUCKET/PREFIX",
		"s3:///prefix":          "must name a bucket",
		"s3://bucket?endpoint=https://s3.example.com": "HOST or HOST:PORT",
		"s3://bucket?acl=public":                      `parameter "acl"`,
		"s3://bucket?region=a&region=b":               `parameter "region"`,
		"s3://bucket?ca-file=/nowhere":                "ca-file that cannot be read",
		"s3://user:secret@bucket":                     "must have neither a user",
		"s3://bucket/%zz":                             "is not a URL",
	}
	for text, want := range cases {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(text)
			if want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v, want %q", err, want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error contains the credentials: %v", err)
			}
		})
	}
}

// published returns what a pass of another Publisher leaves.
func published(t *testing.T, issuer string, ring *signing.Ring) map[string]*Object {
	t.Helper()
	to := &memory{objects: map[string]*Object{}}
	if _, err := (&Publisher{Issuer: issuer}).Pass(t.Context(), to, ring); err != nil {
		t.Fatal(err)
	}
	return to.objects
}

// public returns a key by a short name.
func public(name string) signing.PublicKey {
	pem := map[string]func() []byte{"a": testkeys.RSA2048, "b": testkeys.RSA2048Other, "c": testkeys.RSA3072}[name]
	return testkeys.Parse(pem()).Public()
}
