// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// TestPublish publishes by hand where another issuer's documents are, and goes through a rotation
// that a person has to confirm.
func TestPublish(t *testing.T) {
	t.Parallel()
	dir, ring := t.TempDir(), filepath.Join(t.TempDir(), "ring.json")
	first, second := testkeys.Parse(testkeys.P256()).ID(), testkeys.Parse(testkeys.P384()).ID()
	from := func(data []byte) string { return "--from-private-key-file=" + testutil.WriteFile(t, "key", data) }
	to := func(issuer string) []string {
		return []string{"publish", "--publish-keys=file://" + dir, "--service-account-issuer=" + issuer}
	}
	const a, b = "https://a.example.com", "https://b.example.com"
	for _, step := range []struct {
		args []string
		code int
		want string // in what is printed
	}{
		{[]string{"init", from(testkeys.P256())}, 0, ""},
		{[]string{"publish", "--take-over"}, 1, `--take-over true must come with --publish-keys`},
		{to("kubernetes"), 1, "needs --service-account-issuer with the https URL"},
		{to(a), 0, `{"keys":[{`},
		{to(b), 1, `the documents of another issuer, "https://a.example.com", are there: "keys publish --take-over" replaces them`},
		{append(to(b), "--take-over"), 0, "documents written: [\"/.well-known/openid-configuration\"]"},
		{[]string{"publish", "--published-manually=pool"}, 0, first},
		{[]string{"publish", "--published-manually=pool"}, 0, first},
		{[]string{"rotate", "start", "--cache-age=0s", from(testkeys.P384())}, 0, "next"},
		{[]string{"rotate", "activate", "--skip-proof"}, 1, "publish it there, and then: keys publish confirm pool --key-id=" + second},
		{[]string{"publish", "confirm", "--key-id=" + second}, 1, "want one NAME"},
		{[]string{"publish", "confirm", "pool", "--key-id=" + second}, 0, ""},
		{[]string{"rotate", "complete", "--wait", "--skip-proof"}, 0, "completed"},
		{[]string{"publish", "forget", "pool"}, 0, ""},
		{[]string{"publish", "forget", "pool"}, 1, `no place "pool"`},
	} {
		got := keysCommand(t, ring, step.args...)
		if got.Code != step.code || !strings.Contains(got.Stdout+got.Stderr, step.want) {
			t.Fatalf("keys %v: code %d, want %d and %q:\n%s%s", step.args, got.Code, step.code, step.want, got.Stdout, got.Stderr)
		}
	}
	document, err := os.ReadFile(filepath.Join(dir, signing.DiscoveryPath))
	testutil.Must(t, err)
	if !strings.Contains(string(document), b) {
		t.Errorf("after --take-over the discovery document is %s", document)
	}
}

// TestPublishedIssuer rotates a ring that is published where relying parties read it.
func TestPublishedIssuer(t *testing.T) {
	t.Parallel()
	dir, ring := t.TempDir(), filepath.Join(t.TempDir(), "ring.json")
	server := httptest.NewTLSServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	ca := testutil.WriteFile(t, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	publish := []string{"publish", "--publish-keys=file://" + dir, "--service-account-issuer=" + server.URL}
	see := func(args ...string) []string {
		return append(args, "--published-issuer="+server.URL, "--published-ca-file="+ca)
	}
	for _, step := range []struct {
		args []string
		code int
		want string // in what is printed
	}{
		{[]string{"init", "--algorithm=P-256"}, 0, ""},
		{see("rotate", "status"), 0, "the answer is 404 Not Found"},
		{publish, 0, ""},
		{see("rotate", "status"), 0, server.URL + " has every key; caches may keep a copy for 0s"},
		{see("rotate", "start", "--wait", "--cache-age=0s"), 0, "it is not published"},
		{
			see("rotate", "activate", "--skip-proof"), 1,
			"it is not published: have the keys of the ring published there; --force ignores this, and then relying parties",
		},
		{
			see("rotate", "activate", "--skip-proof", "--published-issuer=https://issuer.example?x"), 1,
			`--published-issuer "https://issuer.example?x" must be`,
		},
		{publish, 0, ""},
		{
			[]string{"rotate", "activate", "--skip-proof", "--published-issuer=" + server.URL, "--published-ca-file=" + ring}, 1,
			"want PEM with at least one certificate",
		},
		{see("rotate", "complete", "--skip-proof"), 0, "completed"},
	} {
		got := keysCommand(t, ring, step.args...)
		if got.Code != step.code || !strings.Contains(got.Stdout+got.Stderr, step.want) {
			t.Fatalf("keys %v: code %d, want %d and %q:\n%s%s", step.args, got.Code, step.code, step.want, got.Stdout, got.Stderr)
		}
	}
}
