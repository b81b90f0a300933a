// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
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
	goThrough(t, nil, ring, []step{
		{[]string{"init", from(testkeys.P256())}, 0, ""},
		{[]string{"publish", "--replace"}, 1, `--replace true must come with --publish-keys`},
		{to("kubernetes"), 1, "needs --service-account-issuer with the https URL"},
		{to(a), 0, `{"keys":[{`},
		{to(b), 1, `the documents of another issuer, "https://a.example.com", are there: "keys publish --replace" replaces them`},
		{append(to(b), "--replace"), 0, "documents written: [\"/.well-known/openid-configuration\"]"},
		{[]string{"publish"}, 0, first},
	})
	document, err := os.ReadFile(filepath.Join(dir, signing.DiscoveryPath))
	testutil.Must(t, err)
	if !strings.Contains(string(document), b) {
		t.Errorf("after --replace the discovery document is %s", document)
	}
}
