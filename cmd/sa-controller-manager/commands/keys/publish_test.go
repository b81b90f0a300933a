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

// TestPublish publishes by hand where another issuer's documents are.
func TestPublish(t *testing.T) {
	t.Parallel()
	dir, ring := t.TempDir(), filepath.Join(t.TempDir(), "ring.json")
	first := testkeys.Parse(testkeys.P256()).ID()
	from := func(data []byte) string { return "--from-private-key-file=" + testutil.WriteFile(t, "key", data) }
	to := func(issuer string) []string {
		return []string{"publish", "--publish-keys=file://" + dir, "--service-account-issuer=" + issuer}
	}
	const a, b = "https://a.example.com", "https://b.example.com"
	server := httptest.NewTLSServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	ca := testutil.WriteFile(t, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	check := func(issuer string) []string {
		return []string{"publish", "--check", "--service-account-issuer=" + issuer, "--published-ca-file=" + ca}
	}
	goThrough(t, nil, ring, []step{
		{[]string{"init", from(testkeys.P256())}, 0, ""},
		{[]string{"publish", "--replace"}, 1, `--replace true must come with --publish-keys`},
		{to("kubernetes"), 1, "needs --service-account-issuer with the https URL"},
		{to(a), 0, `{"keys":[{`},
		{to(b), 1, `the documents of another issuer, "https://a.example.com", are there: "keys publish --replace" replaces them`},
		{append(to(b), "--replace"), 0, "documents written: [\"/.well-known/openid-configuration\"]"},
		{[]string{"publish"}, 0, first},
		{[]string{"publish", "--check"}, 1, `--check true must come with --service-account-issuer`},
		{check(server.URL), 0, " same "},
		{check(server.URL + "/nowhere"), 1, "404"},
		{[]string{"next", "--algorithm=P-384"}, 0, ""},
		{check(server.URL), 2, "The published keys are not the given ones."},
	})
	document := testutil.Get(os.ReadFile(filepath.Join(dir, signing.DiscoveryPath)))(t)
	testutil.Expect(t, strings.Contains(string(document), b), "after --replace the discovery document is %s", document)
}
