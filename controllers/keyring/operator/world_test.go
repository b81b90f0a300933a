// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

var (
	epoch  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	policy = ring.Policy{CacheAge: time.Hour, HoldDown: 24 * time.Hour, TokenLifetime: 48 * time.Hour}
)

// world is a key ring beside a kube-apiserver.
type world struct {
	*Operator

	t     *testing.T
	clock *testingclock.FakeClock
	kube  *clitest.KubeClient
	mu    sync.Mutex // a test may teach kube-apiserver a key while a command waits
	// accepts are the key IDs that kube-apiserver verifies with.
	accepts []string
	// signer is what it signs bound tokens with.
	signer  *signing.PrivateKey
	reviews int
}

func newWorld(t *testing.T, secrets ...runtime.Object) *world {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "default", UID: "1"}}
	w := &world{
		t: t, clock: testingclock.NewFakeClock(epoch),
		kube:   clitest.NewKubeClient(func(string) string { return `{"issuer":"https://issuer.example"}` }, append(secrets, account)...),
		signer: private(t, testkeys.RSA2048Other()),
	}
	w.Operator = &Operator{
		File: ring.At(filepath.Join(t.TempDir(), "keys", "ring.json")), Policy: policy, Clock: w.clock,
		Cluster: &Cluster{Client: w.kube, Issuer: "https://issuer.example", Namespace: "kube-system", Account: "default"},
	}
	w.kube.PrependReactor("create", "tokenreviews", w.review)
	w.kube.PrependReactor("create", "serviceaccounts", w.issue)
	pair := testkeys.Parse(testkeys.RSA2048())
	w.accepts = []string{pair.Public().ID}
	testutil.Must(t, w.File.Init(pair, nil, w.clock.Now(), policy))
	return w
}

func (w *world) review(action clienttesting.Action) (bool, runtime.Object, error) {
	review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reviews++
	token, err := tokens.Inspect(review.Spec.Token)
	if err != nil {
		w.t.Errorf("reviewed something that is no token: %v", err)
	}
	if review.Status.Authenticated = slices.Contains(w.accepts, token.KeyID); review.Status.Authenticated {
		review.Status.User = authenticationv1.UserInfo{Username: token.Subject, UID: "1"}
		review.Status.Audiences = review.Spec.Audiences
	}
	return true, review, nil
}

func (w *world) issue(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "token" {
		return false, nil, nil
	}
	return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: tokenOf(w.t, w.signer)}}, nil
}

// start begins a rotation to a key of the tests.
func (w *world) start(data []byte) string {
	w.t.Helper()
	key := testkeys.Parse(data)
	_, err := w.Start(w.t.Context(), func(signing.PublicKey) bool { return false },
		func(signing.PublicKey) (*signing.PrivateKey, error) { return key, nil })
	w.must(err)
	return key.ID()
}

func (w *world) must(err error) {
	w.t.Helper()
	testutil.Must(w.t, err)
}

func (w *world) state() ring.State {
	w.t.Helper()
	state, err := w.File.Read()
	w.must(err)
	return state
}

func private(t *testing.T, data []byte) *signing.PrivateKey {
	t.Helper()
	key, err := signing.ParsePrivateKey(data)
	testutil.Must(t, err)
	return key
}

// tokenOf is a legacy token.
func tokenOf(t *testing.T, key *signing.PrivateKey) string {
	t.Helper()
	token, err := tokens.NewIssuer(key, tokens.CompatClaims).Legacy(t.Context(), tokens.Account{Namespace: "shop", Name: "someone", UID: "2"},
		"mine")
	testutil.Must(t, err)
	return token
}

// secretOf is a token Secret that holds a token.
func secretOf(name, token string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{"token": []byte(token)},
	}
}

// signatureOver signs as RSA2048 does, whatever the header says.
func signatureOver(t *testing.T, text string) string {
	t.Helper()
	block, _ := pem.Decode(testkeys.RSA2048())
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	testutil.Must(t, err)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, digest[:])
	testutil.Must(t, err)
	return base64.RawURLEncoding.EncodeToString(signature)
}
