// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package jwks_test

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/cmd/sa-controller-manager/commands/jwks"
)

const oneKey = `{"keys":[{"kid":"a"}]}`

func TestReadURL(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	mux := http.NewServeMux()
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("/keys", func(w http.ResponseWriter, r *http.Request) {
		for _, header := range []string{"Authorization", "Cookie", "Referer"} {
			if r.Header.Get(header) != "" {
				t.Errorf("the request has the header %s", header)
			}
		}
		_, _ = w.Write([]byte(oneKey))
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat(" ", 1<<20) + oneKey))
	})
	mux.HandleFunc("/text", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>CANARY")) })
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for path, to := range map[string]string{
		"/once": "/keys?CANARY", "/loop": "/loop", "/plain": plain.URL, "/user": strings.Replace(server.URL, "://", "://me:CANARY@", 1) + "/keys",
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
		"good":              {place: server.URL + "/keys?CANARY", roots: roots},
		"redirected":        {"a bucket behind a name", server.URL + "/thrice", "", roots},
		"redirected often":  {"a loop ends", server.URL + "/four", name + "/four: more than 3 redirects", roots},
		"loop":              {"a loop ends", server.URL + "/loop", name + "/loop: more than 3 redirects", roots},
		"out of https":      {"", server.URL + "/plain", name + "/plain: redirected: want an https URL, so that no other process", roots},
		"with credentials":  {"", server.URL + "/user", name + "/user: redirected: want a URL without user and password", roots},
		"not found":         {"", server.URL + "/none?CANARY", name + "/none: the answer is 404 Not Found, want 200", roots},
		"too long":          {"", server.URL + "/long", name + "/long: it is larger than 1048576 bytes", roots},
		"no JWKS":           {"", server.URL + "/text", "read the keys of SERVER/text: it is not a JWKS", roots},
		"untrusted":         {"the CA is not one of the machine's", server.URL + "/keys", name + "/keys: tls: failed to verify certificate", nil},
		"slow":              {"", server.URL + "/slow?CANARY", name + "/slow: context deadline exceeded", roots},
		"plain HTTP":        {"", plain.URL + "?CANARY", "get keys: want an https URL", nil},
		"user and password": {"", "https://me:CANARY@example.com", "get keys: want a URL without user and password", nil},
		"no host":           {"", "https://", "get keys: want an https URL", nil},
		"no URL":            {"", "https://a b/CANARY", "get keys: invalid character", nil},
		"other scheme":      {"", "file:///etc/passwd", "get keys: want an https URL", nil},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			timeout := 5 * time.Second
			if title == "slow" {
				timeout = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			keys, err := jwks.Read(ctx, tc.place, tc.roots)
			if tc.want == "" {
				if err != nil || len(keys) != 1 || keys[0].ID != "a" {
					t.Errorf("%s: %v, %v", tc.reason, keys, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("%s: no error, want %q", tc.reason, tc.want)
			}
			text := strings.ReplaceAll(err.Error(), server.URL, "SERVER")
			if !strings.HasPrefix(text, tc.want) || strings.Contains(text, "CANARY") {
				t.Errorf("%s: error %q, want %q", tc.reason, text, tc.want)
			}
		})
	}
}
