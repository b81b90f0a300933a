// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/controllers/tokensecrets"
)

// TestReissueGrantsNothing: who may write Secrets makes one look as if its token had to be
// replaced. They get a token for no account but the one that the Secret names and that has
// this UID now, which an empty Secret would have got them too, and never one that was
// taken back.
func TestReissueGrantsNothing(t *testing.T) {
	t.Parallel()
	const otherAccount = "uid-of-another"
	// forged leaves the header, and so the key ID, and writes other claims behind it.
	forged := func(change func(claims string) string) func(*corev1.Secret) {
		return func(secret *corev1.Secret) {
			segments := strings.Split(string(secret.Data[corev1.ServiceAccountTokenKey]), ".")
			claims, err := base64.RawURLEncoding.DecodeString(segments[1])
			if err != nil {
				t.Fatal(err)
			}
			segments[1] = base64.RawURLEncoding.EncodeToString([]byte(change(string(claims))))
			segments[2] = base64.RawURLEncoding.EncodeToString(make([]byte, 64)) // signed by nobody
			secret.Data[corev1.ServiceAccountTokenKey] = []byte(strings.Join(segments, "."))
		}
	}
	same := func(claims string) string { return claims }
	instead := func(old, changed string) func(string) string {
		return func(claims string) string { return strings.ReplaceAll(claims, old, changed) }
	}
	annotation := func(name, value string) func(*corev1.Secret) {
		return func(secret *corev1.Secret) { metav1.SetMetaDataAnnotation(&secret.ObjectMeta, name, value) }
	}
	label := func(name, value string) func(*corev1.Secret) {
		return func(secret *corev1.Secret) { metav1.SetMetaDataLabel(&secret.ObjectMeta, name, value) }
	}
	old, marked := withOld(t), label(tokensecrets.AutoCreatedLabel, "true")
	cases := map[string]struct {
		reason  string
		changes []func(*corev1.Secret)
		want    action // "" for nothing
	}{
		"ForgedSignature":  {reason: "an empty Secret would get the same", changes: []func(*corev1.Secret){old, forged(same), marked}, want: create},
		"ForgedInPlace":    {reason: "likewise", changes: []func(*corev1.Secret){old, forged(same), annotation(tokensecrets.ReissueAnnotation, "in-place")}, want: overwrite},
		"OtherUIDInToken":  {changes: []func(*corev1.Secret){old, forged(instead(testUID, otherAccount)), marked}},
		"OtherUIDInSecret": {changes: []func(*corev1.Secret){old, forged(same), marked, annotation(corev1.ServiceAccountUIDKey, otherAccount)}},
		"OtherUIDInBoth":   {reason: "an account that was deleted", changes: []func(*corev1.Secret){old, forged(instead(testUID, otherAccount)), marked, annotation(corev1.ServiceAccountUIDKey, otherAccount)}},
		"OtherNamespace":   {changes: []func(*corev1.Secret){old, forged(instead("system:serviceaccount:", "system:serviceaccount:kube-system:")), marked}},
		"OtherName":        {changes: []func(*corev1.Secret){old, forged(same), marked, annotation(corev1.ServiceAccountNameKey, "admin")}},
		"NoUID":            {changes: []func(*corev1.Secret){old, forged(same), marked, annotation(corev1.ServiceAccountUIDKey, "")}},
		"MarkedInvalid":    {reason: "it was taken back", changes: []func(*corev1.Secret){old, marked, label(tokensecrets.InvalidSinceLabel, "2026-01-01")}},
		"MarkedInPlace":    {reason: "likewise", changes: []func(*corev1.Secret){old, annotation(tokensecrets.ReissueAnnotation, "in-place"), label(tokensecrets.InvalidSinceLabel, "2026-01-01")}},
		"OfAUser":          {reason: "nobody asked for it", changes: []func(*corev1.Secret){old, userMade}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := account()
			secret := observeAll(tokenSecret("squatter", tc.changes...))
			steps := observe(account, secret, rotated(t)).plan(false, noon().Add(24*time.Hour))
			var got action
			for _, step := range steps {
				got = step.action
			}
			if len(steps) > 1 || got != tc.want {
				t.Fatalf("%s: planned %+v, want %q", tc.reason, steps, tc.want)
			}
			if got != create {
				return
			}
			made := tokensecrets.Observe(successorOf(secret[0], account, "made"))
			if made.Namespace != account.Namespace || made.AccountName != account.Name || made.AccountUID != account.UID || made.Token != nil {
				t.Errorf("%s: what is made is for %s/%s with the UID %s", tc.reason, made.Namespace, made.AccountName, made.AccountUID)
			}
		})
	}
}
