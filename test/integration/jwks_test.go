// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"

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
	args := append(slices.Clone(jwks), "--discovery", "--service-account-issuer="+c.Issuer(), "--jwks-uri="+discovery.URI)
	got := testcluster.Run(t, "", args...).ExpectCode(t, 0).Stdout
	if diff := cmp.Diff(string(document), strings.TrimSpace(got)); diff != "" {
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

// issuer signs as kube-controller-manager would with kube-apiserver's RSA key.
func issuer(t *testing.T, keyFile string) *tokens.Issuer {
	t.Helper()
	data, err := os.ReadFile(keyFile)
	testutil.Must(t, err)
	key, err := signing.ParsePrivateKey(data)
	testutil.Must(t, err)
	return tokens.NewIssuer(key, tokens.CompatClaims)
}

// fill makes a token Secret of the account with its token.
func fill(t *testing.T, c *testcluster.ControlPlane, issuer *tokens.Issuer, account *corev1.ServiceAccount, name string,
	changes ...testcluster.SecretOption) *corev1.Secret {
	t.Helper()
	token, err := issuer.Legacy(t.Context(), tokens.Account{Namespace: account.Namespace, Name: account.Name, UID: string(account.UID)}, name)
	testutil.Must(t, err)
	testcluster.Leaks.AddTokens([]string{token})
	changes = append([]testcluster.SecretOption{testcluster.WithUID(account.UID), testcluster.WithData("token", token),
		testcluster.WithData("namespace", account.Namespace)}, changes...)
	return c.CreateSecret(t, testcluster.TokenSecret(account.Namespace, name, account.Name, changes...))
}

func requestToken(t *testing.T, c *testcluster.ControlPlane, account *corev1.ServiceAccount, audiences ...string) string {
	t.Helper()
	request, err := c.API.CoreV1().ServiceAccounts(account.Namespace).CreateToken(t.Context(), account.Name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("request a token: %v", err)
	}
	testcluster.Leaks.AddTokens([]string{request.Status.Token})
	return request.Status.Token
}
