// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
)

// Review returns the TokenReview of a token.
func (c *ControlPlane) Review(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
	review, err := c.API.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.TokenReviewStatus{}, fmt.Errorf("review a token: %w", err)
	}
	return review.Status, nil
}

// ExpectAccepted waits until kube-apiserver accepts the token of a Secret, and checks that it stands
// for the account. It polls because kube-apiserver reads Secrets from its own cache, whose progress
// nothing announces.
//
// A review changes the Secret: kube-apiserver sets the day of use in a label. It also caches an
// accepted token for ten seconds, so do not review a token that must be refused soon after.
func (c *ControlPlane) ExpectAccepted(t *testing.T, secret *corev1.Secret, account *corev1.ServiceAccount) {
	t.Helper()
	ctx := Context(t)
	var got authenticationv1.UserInfo
	Poll(t, "await that kube-apiserver accepts the token of "+secret.Name, func() error {
		status, err := c.Review(ctx, string(secret.Data[corev1.ServiceAccountTokenKey]))
		if err == nil && !status.Authenticated {
			err = fmt.Errorf("it is refused: %s", status.Error)
		}
		got = status.User
		return err
	})
	want := authenticationv1.UserInfo{
		Username: "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		UID:      string(account.UID),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + account.Namespace, "system:authenticated"},
	}
	testutil.Check(t, "the token of "+secret.Name+" belongs to", want, got)
}

// ExpectComplete checks the whole content of a token Secret that the product has filled.
func (c *ControlPlane) ExpectComplete(t *testing.T, secret *corev1.Secret, account *corev1.ServiceAccount) {
	t.Helper()
	type content struct {
		Type        corev1.SecretType
		Keys        []string
		CA          string
		Namespace   string
		Annotations map[string]string
		Claims      map[string]any
		HeaderKeys  []string
	}
	header, claims := decodeToken(t, secret.Data[corev1.ServiceAccountTokenKey])
	got := content{
		Type:        secret.Type,
		Keys:        slices.Sorted(maps.Keys(secret.Data)),
		CA:          string(secret.Data[corev1.ServiceAccountRootCAKey]),
		Namespace:   string(secret.Data[corev1.ServiceAccountNamespaceKey]),
		Annotations: secret.Annotations,
		Claims:      claims,
		HeaderKeys:  slices.Sorted(maps.Keys(header)),
	}
	want := content{
		Type:      corev1.SecretTypeServiceAccountToken,
		Keys:      []string{"ca.crt", "namespace", "token"},
		CA:        c.RootCA(t),
		Namespace: account.Namespace,
		Annotations: map[string]string{
			"kubernetes.io/service-account.name": account.Name,
			"kubernetes.io/service-account.uid":  string(account.UID),
		},
		Claims:     legacyClaims(account, secret.Name),
		HeaderKeys: []string{"alg", "kid"},
	}
	testutil.Check(t, "secret "+secret.Namespace+"/"+secret.Name, want, got)
}

// legacyClaims returns the claims that kube-controller-manager writes
// (pkg/serviceaccount/legacy.go).
func legacyClaims(account *corev1.ServiceAccount, secret string) map[string]any {
	return map[string]any{
		"iss":                                    "kubernetes/serviceaccount",
		"sub":                                    "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		"kubernetes.io/serviceaccount/namespace": account.Namespace,
		"kubernetes.io/serviceaccount/secret.name":          secret,
		"kubernetes.io/serviceaccount/service-account.name": account.Name,
		"kubernetes.io/serviceaccount/service-account.uid":  string(account.UID),
	}
}

// decodeToken reads a token without verifying it.
func decodeToken(t *testing.T, token []byte) (header, claims map[string]any) {
	t.Helper()
	segments := bytes.Split(token, []byte("."))
	testutil.Require(t, len(segments) == 3, "a token of %d segments", len(segments))
	for i, target := range []*map[string]any{&header, &claims} {
		text := testutil.Get(base64.RawURLEncoding.DecodeString(string(segments[i])))(t)
		testutil.Must(t, json.Unmarshal(text, target))
	}
	return header, claims
}

// KeyIDOf returns the ID of the key that signed a token.
func KeyIDOf(t *testing.T, secret *corev1.Secret) string {
	t.Helper()
	header, _ := decodeToken(t, secret.Data[corev1.ServiceAccountTokenKey])
	id, _ := header["kid"].(string)
	return id
}

// randomName returns a random part of a name.
func randomName() string { return strings.ToLower(rand.Text()[:8]) }

// cleanupContext returns a context for clean-up after the context of the test has ended.
func cleanupContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Timeout)
	t.Cleanup(cancel)
	return ctx
}

// KeyFile is the private key file of a manager, whose content a test changes.
type KeyFile struct{ Path string }

// NewKeyFile copies another file.
func NewKeyFile(t *testing.T, from string) KeyFile {
	t.Helper()
	f := KeyFile{Path: filepath.Join(t.TempDir(), "sa.key")}
	f.Replace(t, ReadFile(t, from))
	return f
}

// Flag returns the flag that names the file.
func (f KeyFile) Flag() string { return "--service-account-private-key-file=" + f.Path }

// VerifyKeyFlags returns flags for a manager in mode manual that signs with another key than the
// cluster's. Without them it would report an unknown key for every Secret of other tests.
func (c *ControlPlane) VerifyKeyFlags() []string {
	return []string{
		"--token-secrets=manual", "--service-account-key-file=" + c.SigningKeyFile(), "--service-account-key-file=" + ECDSAKeyFile(),
	}
}

// Replace replaces the file atomically, by a rename.
func (f KeyFile) Replace(t *testing.T, content []byte) {
	t.Helper()
	next := f.Path + ".next"
	testutil.Must(t, os.WriteFile(next, content, 0o600))
	testutil.Must(t, os.Rename(next, f.Path))
}

// ReadFile returns the content of a file.
func ReadFile(t *testing.T, path string) []byte {
	t.Helper()
	return testutil.Get(os.ReadFile(path))(t)
}

// KeyIDOfPEM derives the key ID of a private key as kube-apiserver does
// (pkg/serviceaccount/jwt.go, keyIDFromPublicKey).
func KeyIDOfPEM(t *testing.T, pem []byte) string {
	t.Helper()
	key := testutil.Get(keyutil.ParsePrivateKeyPEM(pem))(t)
	signer, ok := key.(crypto.Signer)
	testutil.Require(t, ok, "a key of type %T", key)
	der := testutil.Get(x509.MarshalPKIXPublicKey(signer.Public()))(t)
	digest := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

// IssueSignedBy creates a token Secret, waits for its token and checks which key has signed it.
func (c *ControlPlane) IssueSignedBy(t *testing.T, account *corev1.ServiceAccount, by string) *corev1.Secret {
	t.Helper()
	made := c.CreateSecret(t, TokenSecret(account.Namespace, "mine-"+randomName(), account.Name))
	secret := c.AwaitFilled(t, account.Namespace, made.Name)
	testutil.Check(t, "key that has signed", by, KeyIDOf(t, secret))
	return secret
}

// AwaitRefusals returns once n contents of a flag's file have been refused.
func (m *Manager) AwaitRefusals(t *testing.T, flag string, n int) {
	t.Helper()
	m.AwaitMetric(t, "sacm_file_reloads_total", devcluster.Labels{"flag": flag, "result": "refused"}, float64(n))
}
