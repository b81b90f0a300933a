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
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"

	"sa-controller-manager/test/devcluster"
)

// get reads a path that is no resource.
func (c *controlPlane) get(t *testing.T, path string) []byte {
	t.Helper()
	body, err := c.client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("get %s: %v", path, err)
	}
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
	c := sharedControlPlane(t)
	keys := []string{"--service-account-private-key-file=" + c.SigningKeyFile(), "--service-account-key-file=" + shared.ecdsaKeyFile()}
	jwks := append([]string{"keys", "jwks"}, keys...)
	ours, theirs := command(t, "", jwks...).want(t, 0).stdout, c.get(t, "/openid/v1/jwks")
	if diff := cmp.Diff(rawKeys(t, theirs), rawKeys(t, []byte(ours))); diff != "" {
		t.Errorf("kube-apiserver's keys and ours (-theirs +ours):\n%s", diff)
	}
	if len(rawKeys(t, theirs)) != 2 {
		t.Errorf("kube-apiserver has %d keys, want an RSA and an ECDSA one", len(rawKeys(t, theirs)))
	}

	document := c.get(t, "/.well-known/openid-configuration")
	var discovery struct {
		URI string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(document, &discovery); err != nil {
		t.Fatal(err)
	}
	got := command(t, "", append(jwks, "--discovery", "--issuer="+c.Issuer(), "--jwks-uri="+discovery.URI)...).want(t, 0).stdout
	if diff := cmp.Diff(string(document), strings.TrimSpace(got)); diff != "" {
		t.Errorf("the discovery documents (-theirs +ours):\n%s", diff)
	}

	cluster := []string{"--check=cluster", "--kubeconfig=" + c.Kubeconfig()}
	command(t, "", append(jwks, cluster...)...).want(t, 0)
	command(t, "", append([]string{"keys", "jwks", keys[0]}, cluster...)...).want(t, 2).says(t, "extra", "it is no key of the ring")
	stranger := filepath.Join(t.TempDir(), "stranger.key")
	if err := devcluster.WriteSigningKey(stranger, devcluster.ECDSA); err != nil {
		t.Fatal(err)
	}
	shared.canary.addKeyFile(t, stranger)
	command(t, "", append(append(jwks, "--service-account-key-file="+stranger), cluster...)...).want(t, 2).says(t, "missing", "it is not published")

	// The same document from a URL and a file.
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, theirs, 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "", append(jwks, "--check="+file)...).want(t, 0)
	url := c.Config().Host + "/openid/v1/jwks"
	command(t, "", append(jwks, "--check="+url, "--ca-file="+c.CAFile())...).want(t, 1).says(t, "the answer is 40", ", want 200")
	command(t, "", append(jwks, "--check="+url)...).want(t, 1).says(t, "tls: failed to verify certificate")
}

// issuer signs as kube-controller-manager would with kube-apiserver's RSA key.
func (c *controlPlane) issuer(t *testing.T, keyFile string) *tokens.Issuer {
	t.Helper()
	data, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signing.ParsePrivateKey(data)
	if err != nil {
		t.Fatal(err)
	}
	return tokens.NewIssuer(key, tokens.CompatClaims)
}

// fill makes a token Secret of the account with its token.
func (c *controlPlane) fill(t *testing.T, issuer *tokens.Issuer, account *corev1.ServiceAccount, name string, changes ...change) *corev1.Secret {
	t.Helper()
	token, err := issuer.Legacy(t.Context(), tokens.Account{Namespace: account.Namespace, Name: account.Name, UID: string(account.UID)}, name)
	if err != nil {
		t.Fatal(err)
	}
	shared.canary.addTokens([]string{token})
	changes = append([]change{withUID(account.UID), withData("token", token), withData("namespace", account.Namespace)}, changes...)
	return c.createSecret(t, tokenSecret(account.Namespace, name, account.Name, changes...))
}

func (c *controlPlane) requestToken(t *testing.T, account *corev1.ServiceAccount, audiences ...string) string {
	t.Helper()
	request, err := c.client.CoreV1().ServiceAccounts(account.Namespace).CreateToken(t.Context(), account.Name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("request a token: %v", err)
	}
	shared.canary.addTokens([]string{request.Status.Token})
	return request.Status.Token
}

// inspectsAsKubeAPIServerReads spells a token that it accepts otherwise: what it reads over, we do, and nothing else.
func (c *controlPlane) inspectsAsKubeAPIServerReads(t *testing.T, token, key string) {
	t.Helper()
	header, rest, _ := strings.Cut(token, ".")
	for name, spelling := range map[string]string{
		"spare bits":               token[:len(token)-1] + string(token[len(token)-1]+1), // of an RSA signature's 342 digits the last one is A, Q, g or w
		"tab in the header":        token[:3] + "\t" + token[3:],
		"line feed in the payload": header + ".\n" + rest,
	} {
		if status, err := c.review(t.Context(), spelling); err != nil || !status.Authenticated {
			t.Errorf("%s: kube-apiserver refuses it: %v, %s", name, err, status.Error)
		}
		command(t, spelling, "tokens", "inspect", key).want(t, 0).says(t, "Verdict:       valid", "it is spelled otherwise than it was issued")
	}
	tabbed := header + ".\t" + rest
	c.refused(t, []byte(tabbed))
	command(t, tabbed, "tokens", "inspect", key).want(t, 2).says(t, "malformed token: the payload is not base64url")
}

// TestInspect asks what tokens of a real cluster are, while their accounts live and after.
func TestInspect(t *testing.T) {
	c := sharedControlPlane(t)
	namespace := c.namespace(t)
	account := c.createAccount(t, namespace, "robot")
	legacy := string(c.fill(t, c.issuer(t, c.SigningKeyFile()), account, "robot-token").Data["token"])
	bound, foreign := c.requestToken(t, account), c.requestToken(t, account, "vault")
	stranger := filepath.Join(t.TempDir(), "stranger.key")
	if err := devcluster.WriteSigningKey(stranger, devcluster.ECDSA); err != nil {
		t.Fatal(err)
	}
	forged := string(c.fill(t, c.issuer(t, stranger), account, "forged").Data["token"])

	cluster := []string{"tokens", "inspect", "--cluster", "--kubeconfig=" + c.Kubeconfig()}
	key := "--service-account-key-file=" + c.SigningKeyFile()
	user := "system:serviceaccount:" + namespace + ":robot"
	poll(t, "await that kube-apiserver knows the Secret", func() error {
		_, err := c.review(t.Context(), legacy)
		return err
	})
	command(t, legacy, cluster...).want(t, 0).says(t, "legacy, of a token Secret", "Secret:        robot-token", user, "Opens API:     yes", "published, of kube-apiserver's /openid/v1/jwks")
	command(t, "Bearer "+bound+"\n", cluster...).want(t, 0).says(t, "bound, of a TokenRequest", "Expires:", "(in ", user, "Opens API:     yes")
	command(t, foreign, cluster...).want(t, 0).says(t, "Audiences:     vault", "Opens API:     no")
	command(t, forged, cluster...).want(t, 2).says(t, "has its key ID", "kube-apiserver refuses it")
	command(t, bound, "tokens", "inspect", key, "--service-account-issuer="+c.Issuer()).want(t, 0).says(t, "known, of --service-account-key-file=")
	command(t, bound, "tokens", "inspect", key, "--service-account-issuer=https://other").want(t, 2).says(t, "the issuer is another one than https://other")
	command(t, bound, "tokens", "inspect").want(t, 1).says(t, "there is no key to verify the signature with")

	c.inspectsAsKubeAPIServerReads(t, bound, key)

	c.deleteAccount(t, namespace, "robot")
	c.refused(t, []byte(bound))
	got := command(t, bound, append(cluster, "-o=json")...).want(t, 2)
	var report struct {
		Verdict  string
		Findings []struct{ Code string }
		Key      struct{ Algorithm string }
	}
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatal(err)
	}
	if report.Verdict != "invalid" || report.Key.Algorithm != "RS256" || len(report.Findings) != 1 || report.Findings[0].Code != "refused" {
		t.Errorf("report %+v", report)
	}
	refused := command(t, "", "tokens", "inspect", legacy).want(t, 1).says(t, "this looks like a token as an argument")
	if strings.Contains(refused.stderr, legacy[10:30]) {
		t.Error("the token is repeated")
	}
}
