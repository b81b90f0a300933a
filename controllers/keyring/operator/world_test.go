// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

var (
	epoch  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	policy = ring.Policy{CacheAge: time.Hour, TokenLifetime: 48 * time.Hour}
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
	// publishes are further keys that it publishes.
	publishes []signing.PublicKey
	// jwks is its key set, if not nil, "" for none, as where the issuer is no https URL.
	jwks *string
	// signer is what it signs bound tokens with.
	signer []byte
}

func newWorld(t *testing.T, secrets ...runtime.Object) *world {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "default", UID: "1"}}
	w := &world{
		t: t, clock: testingclock.NewFakeClock(epoch),
		signer: testkeys.RSA2048Other(),
	}
	w.kube = clitest.NewKubeClient(w.document, append(secrets, account)...)
	w.Operator = &Operator{
		Progress: func(string, time.Duration) {},
		File:     ring.At(filepath.Join(t.TempDir(), "keys", "ring.json")), Policy: policy, Clock: w.clock, Host: "cp-1",
		Cluster: &Cluster{Client: w.kube, Issuer: "https://issuer.example", Namespace: "kube-system", Account: "default"},
	}
	w.kube.PrependReactor("create", "tokenreviews", w.review)
	w.kube.PrependReactor("create", "serviceaccounts", w.issue)
	w.kube.PrependWatchReactor("secrets", filling(t, w.kube.Clientset, meta.FieldManager, testkeys.P256()))
	pair := testkeys.Parse(testkeys.RSA2048())
	w.accepts = []string{pair.Public().ID, p256ID}
	testutil.Must(t, w.File.Init(pair, nil, new(ring.KeyOf(testkeys.Parse(testkeys.P256()))), w.clock.Now()))
	w.show("cp-1", 0)
	return w
}

// document is what kube-apiserver publishes at a path.
func (w *world) document(path string) string {
	if path != signing.JWKSPath {
		return `{"issuer":"https://issuer.example"}`
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jwks != nil {
		return *w.jwks
	}
	document := testutil.Get(signing.MarshalJWKS(append(w.publishes, testkeys.Parse(testkeys.RSA2048Other()).Public())))(w.t)
	return string(document)
}

// copyFile puts a ring in the place of another one, as a restore of the node does.
func copyFile(from, to *ring.File) error {
	data, err := os.ReadFile(from.Path())
	if err != nil {
		return err
	}
	return os.WriteFile(to.Path(), data, 0o600)
}

// show has a live replica on a host publish the present ring, with the next key shown for a while.
func (w *world) show(host string, since time.Duration) {
	w.t.Helper()
	state := w.state()
	entry := hosts.EntryOf(state)
	entry.Host, entry.Signer = host, true
	entry.SignsWith, entry.ShowsNext, entry.NextSeconds = state.Active().ID, true, int64(since.Seconds())
	for _, key := range state.Keys {
		if !key.PublicOnly {
			entry.Signs = append(entry.Signs, key.ID)
		}
	}
	w.edit(func(p *hosts.Published) {
		p.Entries = append(slices.DeleteFunc(p.Entries, func(entry hosts.Entry) bool { return entry.Host == host }), entry)
	})
}

func (w *world) edit(change func(p *hosts.Published)) {
	w.t.Helper()
	w.must(hosts.Edit(w.t.Context(), w.kube, func(p *hosts.Published) error { change(p); return nil }))
}

func (w *world) published() hosts.Published {
	w.t.Helper()
	p := testutil.Get(hosts.Fetch(w.t.Context(), w.kube))(w.t)
	return p
}

func (w *world) review(action clienttesting.Action) (bool, runtime.Object, error) {
	review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
	w.mu.Lock()
	defer w.mu.Unlock()
	token, err := tokens.Inspect(review.Spec.Token)
	if err != nil {
		w.t.Errorf("reviewed something that is no token: %v", err)
	}
	forged := strings.HasSuffix(review.Spec.Token, strings.Repeat("A", 300))
	switch {
	case !slices.Contains(w.accepts, token.KeyID):
		review.Status.Error = "[invalid bearer token, invalid signature, no keys found]"
	case forged:
		review.Status.Error = "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]"
	default:
		review.Status.Authenticated, review.Status.Audiences = true, review.Spec.Audiences
		review.Status.User = authenticationv1.UserInfo{Username: token.Subject, UID: "1"}
	}
	return true, review, nil
}

func (w *world) issue(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "token" {
		return false, nil, nil
	}
	return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: legacyToken(w.t, w.signer)}}, nil
}

func (w *world) must(err error) {
	w.t.Helper()
	testutil.Must(w.t, err)
}

func (w *world) state() ring.State {
	w.t.Helper()
	state := testutil.Get(w.File.Read())(w.t)
	return state
}

func legacyToken(t *testing.T, key []byte) string {
	t.Helper()
	return controllertest.Token(t, key, controllertest.UID, "mine")
}

func tokenSecret(name, token string) *corev1.Secret {
	return controllertest.TokenSecret(name, controllertest.WithData(corev1.ServiceAccountTokenKey, token))
}

// TestRelyingParties: what they read is asked once the hosts have published the key for long enough.
func TestRelyingParties(t *testing.T) {
	t.Parallel()
	has := func(keys ...signing.PublicKey) []signing.PublicKey { return keys }
	next, other := testkeys.Parse(testkeys.P256()).Public(), testkeys.Parse(testkeys.RSA2048()).Public()
	for name, tc := range map[string]struct {
		reason  string
		shown   time.Duration
		issuers []string
		answer  []signing.PublicKey
		err     error
		force   bool
		asked   string
		want    string
	}{
		"Has":      {shown: time.Hour, answer: has(other, next), asked: "https://issuer.example"},
		"TooEarly": {reason: "it is not asked in vain", answer: has(other, next), want: "copies of the key set may be without key"},
		"Lacks": {
			shown: time.Hour, answer: has(other), asked: "https://issuer.example",
			want: "relying parties of https://issuer.example do not have key " + p256ID + ": it is not published",
		},
		"Forced": {reason: "the user knows", answer: has(other), force: true},
		"Private": {
			reason: "most clusters have an issuer that nobody else can read", shown: time.Hour, err: errors.New("no such host"),
			asked: "https://issuer.example",
		},
		"NamedAndAway": {
			reason: "the user says that it is public", shown: time.Hour, issuers: []string{"https://b"}, err: errors.New("no such host"),
			asked: "https://b", want: "relying parties of https://b do not have key " + p256ID + ": no such host",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.show("cp-1", tc.shown)
			asked := ""
			w.Issuers, w.ReadIssuer = tc.issuers, func(_ context.Context, issuer string) ([]signing.PublicKey, error) {
				asked += issuer
				return tc.answer, tc.err
			}
			w.Issuer = "https://issuer.example"
			err := w.Rotate(t.Context(), RotateOptions{Force: tc.force})
			testutil.Expect(t, asked == tc.asked, "%s: asked %q, want %q", tc.reason, asked, tc.asked)
			if tc.want != "" {
				refusedWith(t, err, tc.want)
			} else if err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}
