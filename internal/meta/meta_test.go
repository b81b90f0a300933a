// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/testutil"
)

func TestLiveAndCachedAccount(t *testing.T) {
	t.Parallel()
	robot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "robot", UID: "robot-uid"}}
	client, indexer := fake.NewClientset(robot), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	testutil.Must(t, indexer.Add(robot))
	lister := corev1listers.NewServiceAccountLister(indexer)
	for name, there := range map[string]bool{"robot": true, "nobody": false} {
		live, err := LiveAccount(t.Context(), client, cache.NewObjectName("shop", name))
		testutil.Expect(t, err == nil && (live != nil) == there && (!there || live.UID == "robot-uid"), "live %s: %v, %v", name, live, err)
		cached := CachedAccount(lister, cache.NewObjectName("shop", name))
		testutil.Expect(t, (cached == robot) == there && (there || cached == nil), "cached %s: %v", name, cached)
	}
	errBoom := errors.New("boom")
	client.PrependReactor("get", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errBoom })
	live, err := LiveAccount(t.Context(), client, cache.NewObjectName("shop", "robot"))
	testutil.Expect(t, live == nil && errors.Is(err, errBoom) && err.Error() == "look up service account shop/robot: boom",
		"when nobody can say: %v, %v", live, err)
}

func TestPreconditions(t *testing.T) {
	t.Parallel()
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token", UID: "uid", ResourceVersion: "7"}}
	deletion, err := json.Marshal(metav1.DeleteOptions{Preconditions: Preconditions(object)})
	testutil.Expect(t, err == nil && string(deletion) == `{"preconditions":{"uid":"uid","resourceVersion":"7"}}`, "delete: %s, %v",
		deletion,
		err)
	metadata := PatchOf(object)
	metadata.Labels = map[string]*string{"set": new("yes"), "gone": nil}
	patch, err := json.Marshal(metadata)
	testutil.Expect(t, err == nil && string(patch) == `{"uid":"uid","resourceVersion":"7","labels":{"gone":null,"set":"yes"}}`,
		"patch: %s, %v", patch, err)
}

func TestRetryWrite(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "robot", errors.New("changed"))
	errBoom := errors.New("boom")
	for name, tc := range map[string]struct {
		answers []error
		want    error
	}{
		"AtOnce":        {[]error{nil}, nil},
		"AfterConflict": {[]error{conflict, nil}, nil},
		"Conflicts":     {[]error{conflict, conflict, conflict, conflict}, conflict},
		"OtherError":    {[]error{errBoom}, errBoom},
		"Timeout":       {[]error{conflict, context.DeadlineExceeded}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := RetryWrite(apierrors.IsConflict, func() error {
				calls++
				return tc.answers[calls-1]
			})
			testutil.Expect(t, errors.Is(err, tc.want) && calls == len(tc.answers), "got %v after %d calls, want %v after %d", err, calls,
				tc.want,
				len(tc.answers))
		})
	}
}

const (
	testToken = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQifQ.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"
	testCA    = "-----BEGIN CERTIFICATE-----\nMIIBdzCCAR2gAwIBAgIBADAKBggqhkjOPQQDAjAj\n-----END CERTIFICATE-----\n"
	policy    = `secrets "x" is forbidden: ValidatingAdmissionPolicy 'only-operator' with binding 'all' denied request`
	webhook   = `admission webhook "guard.example.com" denied the request`
	quota     = `secrets "x" is forbidden: exceeded quota: few, requested: count/secrets=1, used: count/secrets=1, limited: count/secrets=1`
	missing   = `secrets "x" is forbidden: User "system:sa-controller-manager" cannot patch resource "secrets" in the namespace "op"`
	notCalled = `Internal error occurred: failed calling webhook "guard.example.com": failed to call webhook: Post "https://10.0.0.1": EOF`
)

// testHeld is what a Secret has and was to have. A policy may quote both.
var testHeld = []map[string][]byte{
	{"password": []byte("hunter2"), "pin": []byte("0815"), corev1.ServiceAccountNamespaceKey: []byte("op")},
	{corev1.ServiceAccountTokenKey: []byte(testToken), corev1.ServiceAccountRootCAKey: []byte(testCA)},
}

func refusedWith(code int32, reason metav1.StatusReason, text string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: text}}
}

// TestSecretError: a refusal says who has refused, and nothing of a Secret, whatever the author of a policy makes it say.
func TestSecretError(t *testing.T) {
	t.Parallel()
	const (
		rest  = "; its audit log has the rest, which may quote the Secret"
		all   = "400 BadRequest; its audit log has the text, which may quote the Secret"
		label = ": no such label"
	)
	for name, tc := range map[string]struct {
		code    int32
		reason  metav1.StatusReason
		text    string
		held    []map[string][]byte
		want    string
		refused bool
	}{
		"Policy":             {422, "Invalid", policy + label, testHeld, "422 Invalid: " + policy + label, true},
		"PolicyOfUnreadData": {422, "Invalid", policy + label, nil, "422 Invalid: " + policy + rest, true},
		"Webhook":            {403, "Forbidden", webhook + label, testHeld, "403 Forbidden: " + webhook + label, true},
		"SecondDenial": {
			403, "Forbidden", webhook + ": denied request: " + testToken, testHeld, "403 Forbidden: " + webhook + rest, true,
		},
		"WebhookIsDown":   {500, "InternalError", notCalled, testHeld, "500 InternalError: " + notCalled, true},
		"Quota":           {403, "Forbidden", quota, nil, "403 Forbidden: " + quota, true},
		"Permission":      {403, "Forbidden", missing, testHeld, "403 Forbidden: " + missing, false},
		"Other":           {400, "BadRequest", "cannot decode", nil, all, false},
		"OtherThatQuotes": {400, "BadRequest", "cannot decode " + testToken, testHeld, all, false},
		"Long":            {403, "Forbidden", webhook + ": " + strings.Repeat("é", longestText), testHeld, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			refused := refusedWith(tc.code, tc.reason, tc.text)
			err := fmt.Errorf("fill: %w", SecretError(fmt.Errorf("patch: %w", refused), tc.held...))
			want := "fill: kube-apiserver answered " + tc.want
			testutil.Expect(t, tc.want == "" || err.Error() == want, "got  %v\nwant %s", err, want)
			testutil.Expect(t, len(err.Error()) <= longestText+100 && errors.Is(err, refused), "%d bytes, from the answer: %t",
				len(err.Error()),
				errors.Is(err, refused))
			testutil.Check(t, "refused by a policy, webhook or quota", tc.refused, Refused(err))
		})
	}
	down := errors.New("connection refused")
	got := SecretError(down, testHeld...)
	testutil.Expect(t, errors.Is(got, down) && got.Error() == down.Error() && !Refused(down), "an error that is no answer: %v", got)
	testutil.Check(t, "no error", nil, SecretError(nil))
	unchanged := CheckChanged(&metav1.ObjectMeta{UID: "a", ResourceVersion: "1"}, &metav1.ObjectMeta{UID: "a", ResourceVersion: "1"})
	if !Refused(unchanged) || CheckChanged(&metav1.ObjectMeta{ResourceVersion: "1"}, &metav1.ObjectMeta{ResourceVersion: "2"}) != nil {
		t.Errorf("an answer with the same version: %v", unchanged)
	}
}

// TestQuotedSecrets has authors of policies quote a Secret in the ways of CEL and Go templates.
func TestQuotedSecrets(t *testing.T) {
	t.Parallel()
	encode := base64.StdEncoding.EncodeToString
	for name, quote := range map[string]string{
		"Token":           testToken,
		"Part":            "it begins with " + testToken[:20],
		"Signature":       testToken[len(testToken)-15:],
		"UpperCase":       strings.ToUpper(testToken[40:70]),
		"Base64":          "token=" + encode([]byte(testToken)),
		"PartOfBase64":    encode([]byte(testToken))[30:50],
		"Base64OfMore":    encode([]byte("x" + testToken)),
		"Base64OfTwoMore": encode([]byte("xy" + testToken)),
		"Hexadecimal":     fmt.Sprintf("%X", testToken),
		"CA":              testCA,
		"LineOfCA":        "MIIBdzCCAR2gAwIBAgIBADAKBggqhkjOPQQDAjAj",
		"Short":           "the password is hunter2",
		"ShortBase64":     encode([]byte("hunter2")),
		"Digits":          "PIN 0815",
		"Object":          fmt.Sprint(testHeld[0]["password"], " hunter2"),
	} {
		for _, said := range []string{policy + ": " + quote, webhook + ": " + quote} {
			got := SecretError(refusedWith(403, "Forbidden", said), testHeld...).Error()
			testutil.Expect(t, !strings.Contains(got, quote), "%s: %s", name, got)
			// Cut off where it begins.
			long := webhook + ": " + strings.Repeat("x", max(0, longestText-len(webhook)-2-len(quote)/2)) + quote
			if got := SecretError(refusedWith(403, "Forbidden", long), testHeld...).Error(); len(quote) > 4*longestPart &&
				strings.Contains(got, quote[:2*longestPart]) {
				t.Errorf("%s, cut: %s", name, got)
			}
		}
	}
	harmless := policy + ": a Secret in op needs the label team"
	testutil.Expect(t, !quotes(harmless, testHeld) && !quotes("", testHeld) && !quotes(harmless, nil), "a text that quotes nothing is cut")
}
