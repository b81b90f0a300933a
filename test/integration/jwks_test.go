// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// get reads a path that is no resource.
func get(t *testing.T, c *testcluster.ControlPlane, path string) []byte {
	t.Helper()
	body, err := c.API.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
	testutil.Must(t, err)
	return body
}

// rawKeys are the keys of a JWKS as they stand there, in any order.
func rawKeys(t *testing.T, document []byte) []string {
	t.Helper()
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(document, &set); err != nil {
		t.Fatalf("%v:\n%s", err, document)
	}
	var keys []string
	for _, key := range set.Keys {
		keys = append(keys, string(key))
	}
	slices.Sort(keys)
	return keys
}

// TestJWKSIsThatOfKubeAPIServer compares bytes, of keys of both kinds.
func TestJWKSIsThatOfKubeAPIServer(t *testing.T) {
	c := testcluster.Shared(t)
	keys := []string{"--service-account-private-key-file=" + c.SigningKeyFile(), "--service-account-key-file=" + testcluster.ECDSAKeyFile()}
	jwks := append([]string{"keys", "jwks"}, keys...)
	ours, theirs := testcluster.Run(t, "", jwks...).ExpectCode(t, 0).Stdout, get(t, c, "/openid/v1/jwks")
	if diff := cmp.Diff(rawKeys(t, theirs), rawKeys(t, []byte(ours))); diff != "" {
		t.Errorf("kube-apiserver's keys and ours (-theirs +ours):\n%s", diff)
	}
	if len(rawKeys(t, theirs)) != 2 {
		t.Errorf("kube-apiserver has %d keys, want an RSA and an ECDSA one", len(rawKeys(t, theirs)))
	}

	document := get(t, c, "/.well-known/openid-configuration")
	var discovery struct {
		URI string `json:"jwks_uri"`
	}
	testutil.Must(t, json.Unmarshal(document, &discovery))
	public, err := signing.ParseJWKS([]byte(ours))
	testutil.Must(t, err)
	got, err := signing.MarshalDiscovery(c.Issuer(), public)
	testutil.Must(t, err)
	theirs = []byte(strings.Replace(string(document), discovery.URI, c.Issuer()+signing.JWKSPath, 1))
	if diff := cmp.Diff(string(theirs), string(got)); diff != "" {
		t.Errorf("the discovery documents (-theirs +ours):\n%s", diff)
	}

	cluster := []string{"--check=cluster", "--kubeconfig=" + c.Kubeconfig()}
	testcluster.Run(t, "", append(jwks, cluster...)...).ExpectCode(t, 0)
	testcluster.Run(t, "", append([]string{"keys", "jwks", keys[0]}, cluster...)...).ExpectCode(t, 2).ExpectTexts(t, "extra",
		"it is none of the given keys")
	unknownKey := filepath.Join(t.TempDir(), "unknown.key")
	testutil.Must(t, devcluster.WriteSigningKey(unknownKey, devcluster.ECDSA))
	testcluster.Leaks.AddKeyFile(t, unknownKey)
	testcluster.Run(t, "", append(append(jwks, "--service-account-key-file="+unknownKey), cluster...)...).ExpectCode(t, 2).ExpectTexts(t,
		"missing", "it is not published")
}
