// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"crypto/sha256"
	"encoding/base64"
	"reflect"
	"strings"
	"testing"
	"time"
	"unique"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

// readToken lets go-cmp see what a Token holds.
var readToken = cmp.Transformer("read", func(token *Token) []string {
	if token == nil {
		return nil
	}
	return []string{"key ID " + token.KeyID(), "account UID " + string(token.AccountUID)}
})

// observedToken is the observation of a token.
func observedToken(keyID, accountUID string) *Token {
	return &Token{keyID: unique.Make(keyID), AccountUID: types.UID(accountUID)}
}

// observation is that of tokenSecret(), with changes made to it.
func observation(changes ...func(*TokenSecret)) *TokenSecret {
	observed := &TokenSecret{
		ObjectMeta:   metav1.ObjectMeta{Namespace: "shop", Name: "robot-token", UID: "secret-uid", ResourceVersion: "17"},
		AccountName:  "robot",
		AccountUID:   accountUID,
		HasCA:        true,
		CAHash:       sha256.Sum256([]byte(strings.Repeat("certificate ", 100))),
		HasNamespace: true,
	}
	for _, change := range changes {
		change(observed)
	}
	return observed
}

// rewrite replaces one segment of a token: 0 is the header, 1 the payload. The signature does not
// matter to Inspect.
func rewrite(token string, segment int, text string) string {
	segments := strings.Split(token, ".")
	segments[segment] = base64.RawURLEncoding.EncodeToString([]byte(text))
	return strings.Join(segments, ".")
}

type observeCase struct {
	reason string
	secret *corev1.Secret
	want   *TokenSecret
}

func checkObserve(t *testing.T, cases map[string]observeCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			given := tc.secret.DeepCopy()
			testutil.Check(t, tc.reason+": observed", tc.want, Observe(tc.secret), readToken)
			if !reflect.DeepEqual(given, tc.secret) { // go-cmp takes seconds for 256 KiB
				t.Errorf("the Secret was changed (-before +after):\n%s", cmp.Diff(given, tc.secret))
			}
		})
	}
}

func TestObserveToken(t *testing.T) {
	t.Parallel()
	const (
		notAToken = "data.token is not a service account token: malformed token: "
		notForIt  = "data.token is not for this Secret: the token's claim "
	)
	good := legacyToken(t, robot(), "robot-token")
	keyID := testkeys.Parse(testkeys.P256()).ID()
	bound := testutil.Get(tokens.NewIssuer(testkeys.Parse(testkeys.P256()), tokens.CompatClaims).Bound(t.Context(), tokens.BoundRequest{
		Issuer: "https://issuer.example.com", Account: robot(), Audiences: []string{"api"}, Lifetime: time.Hour,
	}))(t)
	former, admin := robot(), robot()
	former.UID, admin.Name = "former-uid", "admin"
	const otherNamespace = "data.namespace does not name the namespace of the Secret"
	for name, tc := range map[string]struct {
		reason, token       string
		change              func(*corev1.Secret)
		unnamed             bool // it names no account
		keyID, uid, finding string
	}{
		"None": {reason: "no bytes, no token"},
		"Good": {token: good, keyID: keyID, uid: accountUID},
		"FormerUID": {
			reason: "whether this UID lives is for the reader to say", token: legacyToken(t, former, "robot-token"), keyID: keyID,
			uid: former.UID,
		},
		"NoKeyID": {reason: "old kube-controller-managers wrote none", token: rewrite(good, 0, `{"alg":"ES256"}`), uid: accountUID},
		"OfAnotherSecret": {
			token: legacyToken(t, robot(), "other-token"), keyID: keyID, uid: accountUID,
			finding: notForIt + `kubernetes.io/serviceaccount/secret.name is not "robot-token"`,
		},
		"OfAnotherAccount": {
			token: legacyToken(t, admin, "robot-token"), keyID: keyID, uid: accountUID,
			finding: notForIt + `kubernetes.io/serviceaccount/service-account.name is not "robot"`,
		},
		"Bound": {
			reason: "a token of TokenRequest has no place in a Secret", token: bound, keyID: keyID,
			finding: notForIt + `iss is not "kubernetes/serviceaccount"`,
		},
		"EmptyObjects": {
			token:   "e30.e30.e30",
			finding: `data.token is not for this Secret: the token has no claim iss (expected "kubernetes/serviceaccount")`,
		},
		"Garbage":   {token: "changeme", finding: notAToken + "not three segments"},
		"Respelled": {token: good[:3] + "\t" + good[3:], keyID: keyID, uid: accountUID, finding: notAToken + "the header is not base64url"},
		"NoAccount": {
			reason: "a token needs an account to be for", token: good, change: withAnnotation(corev1.ServiceAccountNameKey, ""),
			unnamed: true,
			keyID:   keyID, uid: accountUID, finding: notForIt + `kubernetes.io/serviceaccount/service-account.name is not ""`,
		},
		"WrongNamespace": {change: withData(corev1.ServiceAccountNamespaceKey, "kube-system"), finding: otherNamespace},
		"WrongNamespaceBadToken": {
			reason: "both, and the token first", token: "changeme", change: withData(corev1.ServiceAccountNamespaceKey, "kube-system"),
			finding: notAToken + "not three segments; " + otherNamespace,
		},
	} {
		secret, want := tokenSecret(withToken(tc.token)), observation()
		if tc.change != nil {
			tc.change(secret)
		}
		if want.Finding = tc.finding; tc.token != "" {
			want.Token = observedToken(tc.keyID, tc.uid)
		}
		if tc.unnamed {
			want.AccountName = ""
		}
		checkObserve(t, map[string]observeCase{name: {reason: tc.reason, secret: secret, want: want}})
	}
}

func TestObserveMetadata(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	named := func(name string) *corev1.Secret {
		return tokenSecret(withAnnotation(corev1.ServiceAccountNameKey, name))
	}
	labelled := func(labels map[string]string) *corev1.Secret {
		return tokenSecret(func(s *corev1.Secret) { s.Labels = labels })
	}
	keep := observation(func(s *TokenSecret) { s.Keep = true })
	unnamed := observation(func(s *TokenSecret) { s.AccountName = "" })
	checkObserve(t, map[string]observeCase{
		"Bare": {
			reason: "nothing but a type",
			secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bare"},
				Type: corev1.SecretTypeServiceAccountToken},
			want: &TokenSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bare"}},
		},
		"Rest": {
			reason: "times stay, what nobody reads goes", secret: tokenSecret(func(s *corev1.Secret) {
				s.CreationTimestamp, s.DeletionTimestamp = now, &now
				s.Finalizers, s.GenerateName, s.Generation = []string{"example.com/wait"}, "robot-", 3
				s.ManagedFields = []metav1.ManagedFieldsEntry{wrote("kubectl-create", labelFields)}
				s.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
			}),
			want: observation(func(s *TokenSecret) { s.CreationTimestamp, s.DeletionTimestamp = now, &now }),
		},
		"Immutable": {
			secret: tokenSecret(func(s *corev1.Secret) { s.Immutable = new(true) }),
			want:   observation(func(s *TokenSecret) { s.Immutable = true }),
		},
		"AnotherCA": {
			secret: tokenSecret(withData(corev1.ServiceAccountRootCAKey, "another")),
			want:   observation(func(s *TokenSecret) { s.CAHash = sha256.Sum256([]byte("another")) }),
		},
		"EmptyCA": {
			reason: "no bytes, no CA", secret: tokenSecret(withData(corev1.ServiceAccountRootCAKey, "")),
			want: observation(func(s *TokenSecret) { s.HasCA, s.CAHash = false, [sha256.Size]byte{} }),
		},
		"EmptyNamespace": {
			secret: tokenSecret(withData(corev1.ServiceAccountNamespaceKey, "")),
			want:   observation(func(s *TokenSecret) { s.HasNamespace = false }),
		},
		"OtherUID": {
			reason: "a UID is compared and nothing else, so any text will do",
			secret: tokenSecret(withAnnotation(corev1.ServiceAccountUIDKey, "a\nb")),
			want:   observation(func(s *TokenSecret) { s.AccountUID = "a\nb" }),
		},

		"Keep":        {secret: tokenSecret(withAnnotation(KeepAnnotation, "true")), want: keep},
		"KeepFalse":   {secret: tokenSecret(withAnnotation(KeepAnnotation, "false")), want: observation()},
		"KeepEmpty":   {reason: "kubectl annotate ...keep=", secret: tokenSecret(withAnnotation(KeepAnnotation, "")), want: keep},
		"KeepUnclear": {reason: "a deletion cannot be undone", secret: tokenSecret(withAnnotation(KeepAnnotation, "yes")), want: keep},

		"NameEmpty":     {secret: named(""), want: unnamed},
		"NameUpperCase": {reason: "no account can be called this", secret: named("Robot"), want: unnamed},
		"NameNewLine":   {reason: "a $ in a pattern must not match before it", secret: named("robot\n"), want: unnamed},
		"NameTooLong":   {secret: named(strings.Repeat("a", 254)), want: unnamed},

		"Labels": {
			reason: "only those that decide something are kept",
			secret: labelled(map[string]string{AutoCreatedLabel: "true", InvalidSinceLabel: "2026-01-02", LastUsedLabel: "2025-01-02",
				"app": "shop"}),
			want: observation(func(s *TokenSecret) {
				s.Labels = map[string]string{AutoCreatedLabel: "true", InvalidSinceLabel: "2026-01-02", LastUsedLabel: "2025-01-02"}
			}),
		},
		"ForeignLabels": {reason: "an empty map costs memory", secret: labelled(map[string]string{"app": "shop"}), want: observation()},
	})
}

func TestReplaces(t *testing.T) {
	t.Parallel()
	const of = "robot-token/secret-uid"
	unchanged := func(*corev1.Secret) {}
	for name, tc := range map[string]struct {
		annotation string
		change     func(*corev1.Secret)
	}{
		"Replaces":         {of, unchanged},
		"AnotherName":      {"other/secret-uid", unchanged},
		"AnotherUID":       {"robot-token/before", unchanged}, // it was deleted and made again
		"Garbage":          {"robot-token", unchanged},
		"Empty":            {"", unchanged},
		"AnotherAccount":   {of, withAnnotation(corev1.ServiceAccountNameKey, "builder")},
		"AnotherNamespace": {of, func(s *corev1.Secret) { s.Namespace = "elsewhere" }},
	} {
		renamed := func(s *corev1.Secret) { s.Name, s.UID = "new", "uid-new" }
		successor := tokenSecret(withAnnotation(ReplacesAnnotation, tc.annotation), renamed, tc.change)
		testutil.Check(t, name, name == "Replaces", Observe(successor).Replaces(Observe(tokenSecret())))
	}
}

func TestNewName(t *testing.T) {
	t.Parallel()
	for _, length := range []int{1, 241, 242, 253} {
		account := strings.Repeat("a", length)
		name := NewName(account, NewSuffix())
		problems := validation.IsDNS1123Subdomain(name)
		testutil.Expect(t, len(problems) == 0, "account name of %d characters: %v", length, problems)
		testutil.Expect(t, NewName(account, NewSuffix()) != name, "%s is made twice", name)
	}
}
