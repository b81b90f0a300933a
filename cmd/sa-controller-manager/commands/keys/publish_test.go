// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// TestPublish publishes by hand where another issuer's documents are, and at a place of which a person has
// to say so.
func TestPublish(t *testing.T) {
	t.Parallel()
	dir, ring := t.TempDir(), filepath.Join(t.TempDir(), "ring.json")
	first := testkeys.Parse(testkeys.P256()).ID()
	kube := clitest.NewKubeClient(func(string) string { return "" })
	client := func(o *options.Connection) (kubernetes.Interface, error) {
		o.Cluster = "demo https://a"
		return kube, nil
	}
	from := func(data []byte) string { return "--from-private-key-file=" + testutil.WriteFile(t, "key", data) }
	to := func(issuer string) []string {
		return []string{"publish", "--publish-keys=file://" + dir, "--service-account-issuer=" + issuer}
	}
	const a, b = "https://a.example.com", "https://b.example.com"
	goThrough(t, client, ring, []step{
		{[]string{"init", from(testkeys.P256())}, 0, ""},
		{[]string{"publish", "--replace"}, 1, `--replace true must come with --publish-keys`},
		{to("kubernetes"), 1, "needs --service-account-issuer with the https URL"},
		{to(a), 0, `{"keys":[{`},
		{to(b), 1, `the documents of another issuer, "https://a.example.com", are there: "keys publish --replace" replaces them`},
		{append(to(b), "--replace"), 0, "documents written: [\"/.well-known/openid-configuration\"]"},
		{[]string{"publish", "--published-manually=pool"}, 0, first},
		{[]string{"publish", "--published-manually=pool"}, 0, "Cluster:    demo https://a\n"},
		{[]string{"publish", "confirm", "--kubeconfig=k", "--key-id=" + first}, 1, "want one NAME"},
		{[]string{"publish", "confirm", "pool", "--kubeconfig=k", "--key-id=nobody"}, 1, `the ring has no key "nobody"`},
		{[]string{"publish", "confirm", "pool", "--kubeconfig=k", "--key-id=" + first}, 0, ""},
		{[]string{"publish", "confirm", "pool", "--kubeconfig=k", "--key-id=" + first}, 0, ""},
		{[]string{"publish", "forget", "pool", "--kubeconfig=k"}, 0, ""},
		{[]string{"publish", "forget", "pool", "--kubeconfig=k"}, 1, `no such place "pool"`},
	})
	document, err := os.ReadFile(filepath.Join(dir, signing.DiscoveryPath))
	testutil.Must(t, err)
	if !strings.Contains(string(document), b) {
		t.Errorf("after --replace the discovery document is %s", document)
	}
}
