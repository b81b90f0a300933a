// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package relying

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

const oneKey = `{"keys":[{"kid":"a"}]}`

func TestJWKS(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	mux := http.NewServeMux()
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("/keys", func(w http.ResponseWriter, r *http.Request) {
		for _, header := range []string{"Authorization", "Cookie", "Referer", "Cache-Control", "Pragma"} {
			testutil.Expect(t, r.Header.Get(header) == "", "the request has the header %s", header)
		}
		_, _ = w.Write([]byte(oneKey))
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat(" ", 1<<20) + oneKey))
	})
	mux.HandleFunc("/text", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>CANARY")) })
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for path, to := range map[string]string{
		"/once": "/keys?CANARY", "/loop": "/loop", "/plain": plain.URL, "/user": strings.Replace(server.URL, "://", "://me:CANARY@", 1) +
			"/keys",
		"/thrice": "/twice", "/twice": "/once", "/four": "/thrice",
	} {
		mux.Handle(path, http.RedirectHandler(to, http.StatusFound))
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	const name = "get the keys of SERVER"
	cases := map[string]struct {
		reason, place, want string
		roots               *x509.CertPool
	}{
		"good":             {place: server.URL + "/keys?CANARY", roots: roots},
		"redirected":       {"a bucket behind a name", server.URL + "/thrice", "", roots},
		"redirected often": {"a loop ends", server.URL + "/four", name + "/four: more than 3 redirects", roots},
		"loop":             {"a loop ends", server.URL + "/loop", name + "/loop: more than 3 redirects", roots},
		"out of https":     {"", server.URL + "/plain", name + "/plain: redirected: want an https URL, so that no other process", roots},
		"with credentials": {"", server.URL + "/user", name + "/user: redirected: want a URL without user and password", roots},
		"not found":        {"", server.URL + "/none?CANARY", name + "/none: the answer is 404 Not Found, want 200", roots},
		"too long":         {"", server.URL + "/long", name + "/long: it is larger than 1048576 bytes", roots},
		"no JWKS":          {"", server.URL + "/text", "read the keys of SERVER/text: it is not a JWKS", roots},
		"untrusted": {
			"the CA is not one of the machine's", server.URL + "/keys", name + "/keys: tls: failed to verify certificate", nil,
		},
		"slow":              {"", server.URL + "/slow?CANARY", name + "/slow: context deadline exceeded", roots},
		"plain HTTP":        {"", plain.URL + "?CANARY", "get keys: want an https URL", nil},
		"user and password": {"", "https://me:CANARY@example.com", "get keys: want a URL without user and password", nil},
		"no host":           {"", "https://", "get keys: want an https URL", nil},
		"no URL":            {"", "https://a b/CANARY", "get keys: invalid character", nil},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			timeout := 5 * time.Second
			if title == "slow" {
				timeout = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			keys, err := (&Reader{Roots: tc.roots}).JWKS(ctx, tc.place)
			if tc.want == "" {
				testutil.Expect(t, err == nil && len(keys) == 1 && keys[0].ID == "a", "%s: %v, %v", tc.reason, keys, err)
				return
			}
			testutil.Require(t, err != nil, "%s: no error, want %q", tc.reason, tc.want)
			text := strings.ReplaceAll(err.Error(), server.URL, "SERVER")
			testutil.Expect(t, strings.HasPrefix(text, tc.want) && !strings.Contains(text, "CANARY"), "%s: error %q, want %q", tc.reason,
				text,
				tc.want)
		})
	}
}

// TestIssuer reads the documents of issuers at one server, each at a path of its own.
func TestIssuer(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	server, other := httptest.NewTLSServer(mux), httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(other.Close)
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(oneKey))
	})
	mux.Handle("/moved", http.RedirectHandler(other.URL+"/keys", http.StatusFound))
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	cases := map[string]struct {
		reason   string
		document string // the discovery document with $ISSUER, $SERVER and $OTHER
		want     string
	}{
		"good":       {"", `{"issuer":"$ISSUER","jwks_uri":"$SERVER/keys"}`, ""},
		"other host": {"as relying parties do", `{"issuer":"$ISSUER","jwks_uri":"$OTHER/keys"}`, ""},
		"moved":      {"as relying parties do", `{"issuer":"$ISSUER","jwks_uri":"$SERVER/moved"}`, ""},
		"other issuer": {
			"its tokens are not ours", `{"issuer":"https://example.com","jwks_uri":"$SERVER/keys"}`,
			`is of another issuer, "https://example.com"`,
		},
		"with a slash": {
			"relying parties compare letter by letter", `{"issuer":"$ISSUER/","jwks_uri":"$SERVER/keys"}`, "is of another issuer",
		},
		"plain":          {"", `{"issuer":"$ISSUER","jwks_uri":"http://$HOST/keys"}`, "want an https URL"},
		"no discovery":   {"", oneKey, "is no discovery document"},
		"2 MiB":          {"", strings.Repeat(" ", 2<<20) + "{}", "it is larger than 1048576 bytes"},
		"nothing there":  {"", "", "the answer is 404 Not Found"},
		"keys not there": {"", `{"issuer":"$ISSUER","jwks_uri":"$SERVER/none"}`, "the jwks_uri of"},
	}
	for title, tc := range cases {
		path := "/" + strings.ReplaceAll(title, " ", "-")
		issuer := server.URL + path
		if tc.document != "" {
			document := strings.NewReplacer("$ISSUER", issuer, "$SERVER", server.URL, "$OTHER", other.URL, "$HOST",
				server.Listener.Addr().String()).Replace(tc.document)
			mux.HandleFunc(path+"/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(document))
			})
		}
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			keys, err := (&Reader{Roots: roots}).Issuer(t.Context(), issuer)
			if tc.want == "" {
				testutil.Expect(t, err == nil && len(keys) == 1, "%s: %+v, %v; want one key", tc.reason, keys, err)
				return
			}
			testutil.CheckError(t, tc.reason, tc.want, err)
		})
	}
}

func key(pem []byte, role signing.Role) signing.Key { return testkeys.Parse(pem).Public().As(role) }

// inJWKS is the key as it should be.
func inJWKS(key signing.Key, changes ...func(*signing.PublicKey)) signing.PublicKey {
	p := signing.PublicKey{ID: key.ID, Algorithm: key.Algorithm, Key: key.Key}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func TestCompare(t *testing.T) {
	t.Parallel()
	active, retired := key(testkeys.RSA2048(), signing.Active), key(testkeys.P256(), signing.Retired)
	stranger := key(testkeys.P384(), "")
	same := func(key signing.Key) Line {
		return Line{ID: key.ID, Algorithm: key.Algorithm, State: key.Role, Result: Same}
	}
	line := func(key signing.Key, result Result, detail string) Line {
		l := same(key)
		l.Result, l.Detail = result, detail
		return l
	}
	otherID := func(p *signing.PublicKey) { p.ID = "mine" }
	noID := func(p *signing.PublicKey) { p.ID = "" }
	noAlgorithm := func(p *signing.PublicKey) { p.Algorithm = "" }
	otherAlgorithm := func(p *signing.PublicKey) { p.Algorithm = "PS256" }
	otherKey := func(p *signing.PublicKey) { p.Key = stranger.Key }
	unreadable := func(p *signing.PublicKey) { p.Key, p.Problem = nil, "broken" }
	leaked := func(p *signing.PublicKey) { p.Problem = signing.ProblemPrivate }
	const gone, foreign, another = "it is not published", "it is none of the given keys", "another key is published under its ID"
	const leak = "the document contains the private key, with which every reader can sign tokens: rotate now"
	cases := map[string]struct {
		reason    string
		published []signing.PublicKey
		want      []Line
		change    func(*signing.PublicKey) // of the active key, instead of both
		differs   string
	}{
		"same": {
			reason: "in any order", published: []signing.PublicKey{inJWKS(retired), inJWKS(active)},
			want: []Line{same(active), same(retired)},
		},
		"no algorithm": {
			reason: "RFC 7517 does not demand it", published: []signing.PublicKey{inJWKS(retired), inJWKS(active, noAlgorithm)},
			want: []Line{same(active), same(retired)},
		},
		"missing": {
			reason: "its tokens are refused", published: []signing.PublicKey{inJWKS(active)},
			want: []Line{same(active), line(retired, Missing, gone)},
		},
		"extra": {
			reason: "tokens of a stranger are accepted", published: []signing.PublicKey{inJWKS(stranger), inJWKS(active), inJWKS(retired)},
			want: []Line{same(active), same(retired), {ID: stranger.ID, Algorithm: "ES384", Result: Extra, Detail: foreign}},
		},
		"unreadable one": {
			reason:    "nobody can verify with it",
			published: []signing.PublicKey{{ID: "x", Problem: "broken"}, inJWKS(active), inJWKS(retired)},
			want:      []Line{same(active), same(retired), {ID: "x", Result: Extra, Detail: foreign + ", and cannot be read: broken"}},
		},
		"other key": {reason: "worse than none", change: otherKey, differs: another},
		"other ID": {
			reason: "found by no token", change: otherID, differs: `it is published with the key ID "mine", which its tokens do not bear`,
		},
		"no ID": {change: noID, differs: "it is published with the key ID \"\", which its tokens do not bear"},
		"other algorithm": {
			reason: "the token's would be refused", change: otherAlgorithm, differs: `it is published with the algorithm "PS256"`,
		},
		"cannot be read": {change: unreadable, differs: "what is published under its ID cannot be read: broken"},
		"both": {
			reason:    "which one counts depends on the reader",
			published: []signing.PublicKey{inJWKS(active, otherKey), inJWKS(active), inJWKS(retired)},
			want:      []Line{line(active, Differs, another), same(retired)},
		},
		"leaked": {
			reason:    "the user exported the wrong half",
			published: []signing.PublicKey{inJWKS(active), inJWKS(active, leaked), inJWKS(retired)},
			want:      []Line{line(active, Leaked, leak), same(retired)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.change != nil {
				tc.published = []signing.PublicKey{inJWKS(active, tc.change), inJWKS(retired)}
				tc.want = []Line{line(active, Differs, tc.differs), same(retired)}
			}
			// A key may be in two files.
			got := Compare([]signing.Key{active, retired, active}, tc.published)
			testutil.Check(t, tc.reason, tc.want, got)
		})
	}
}
