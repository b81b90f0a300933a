// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	old, fresh := withOld(t), withNew(t)
	kcm := func(secret *corev1.Secret) {
		userMade(secret)
		filledBy(meta.UpstreamFieldManager)(secret)
	}
	cases := map[string]struct {
		reason  string
		account *corev1.ServiceAccount
		secrets []*corev1.Secret
		auto    bool
		want    []string
		holds   map[string]Progress
	}{
		"Due":         {account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", old)}, want: []string{"create a"}, holds: map[string]Progress{"a": {State: Due}}},
		"ActiveKey":   {account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", fresh)}},
		"NoToken":     {account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a")}},
		"UnknownKey":  {reason: "another replica may be ahead", account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", signedBy(t, strangePEM(), testUID))}},
		"NotReferred": {reason: "the list proves nothing, in either direction", account: account(), secrets: []*corev1.Secret{tokenSecret("a", old)}, want: []string{"create a"}, holds: map[string]Progress{"a": {State: Due}}},
		"MadeByKCM":   {account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", old, kcm)}, want: []string{"create a"}, holds: map[string]Progress{"a": {State: Due}}},
		"NamedAsByKCM": {
			reason:  "users name Secrets like this too, and a replaced Secret is deleted one day",
			account: account(referencing("app-token-x7k2p")), secrets: []*corev1.Secret{tokenSecret("app-token-x7k2p", old, userMade, unmanaged)},
			holds: map[string]Progress{"app-token-x7k2p": blocked(UserMade)},
		},
		"UserMade": {
			reason:  "a reference alone proves nothing",
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", old, userMade)}, holds: map[string]Progress{"a": blocked(UserMade)},
		},
		"UserMadeSideBySide": {
			account: account(), secrets: []*corev1.Secret{tokenSecret("a", old, userMade, mode("side-by-side"))},
			want: []string{"create a"}, holds: map[string]Progress{"a": {State: Due}},
		},
		"Never":       {account: account(), secrets: []*corev1.Secret{tokenSecret("a", old, mode("never"))}, holds: map[string]Progress{"a": blocked(Never)}},
		"UnknownMode": {account: account(), secrets: []*corev1.Secret{tokenSecret("a", old, mode("always"))}, want: []string{"warn a"}, holds: map[string]Progress{"a": blocked(UnknownMode)}},
		"MarkedInvalid": {
			reason:  "nobody is given back what was taken from them",
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", old, labelled(tokensecrets.InvalidSinceLabel, "2026-01-01"))},
			holds: map[string]Progress{"a": blocked(Invalid)},
		},
		"Terminating": {account: account(), secrets: []*corev1.Secret{tokenSecret("a", old, terminating)}, holds: map[string]Progress{"a": blocked(Terminating)}},
		"NoAccount":   {secrets: []*corev1.Secret{tokenSecret("a", old)}, holds: map[string]Progress{"a": blocked(Mismatch)}},
		"AccountMadeAnew": {
			reason:  "the token is for the one before",
			account: account(recreated), secrets: []*corev1.Secret{tokenSecret("a", old)},
			holds: map[string]Progress{"a": blocked(Mismatch)},
		},
		"AccountTerminating": {
			account: account(func(a *corev1.ServiceAccount) { a.DeletionTimestamp = &metav1.Time{Time: noon()} }),
			secrets: []*corev1.Secret{tokenSecret("a", old)}, holds: map[string]Progress{"a": blocked(Mismatch)},
		},
		"TokenOfAnotherAccount": {
			account: account(), secrets: []*corev1.Secret{tokenSecret("a", signedBy(t, oldPEM(), otherUID))}, holds: map[string]Progress{"a": blocked(Mismatch)},
		},
		"Respelled": {
			reason:  "kube-apiserver takes it, so that it holds the key; what to do about it is for a person to say",
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", old, spaced)}, holds: map[string]Progress{"a": blocked(Mismatch)},
		},

		"Forged": {
			reason:  "signed by nobody: it is replaced, as an empty Secret would be filled",
			account: account(), secrets: []*corev1.Secret{tokenSecret("a", old, forged(t, "", ""))}, want: []string{"create a"}, holds: map[string]Progress{"a": {State: Due}},
		},
		"ForgedUID": {account: account(), secrets: []*corev1.Secret{tokenSecret("a", old, forged(t, testUID, otherUID))}, holds: map[string]Progress{"a": blocked(Mismatch)}},
		"ForgedUIDInBoth": {
			reason:  "an account that was deleted gets no token",
			account: account(), secrets: []*corev1.Secret{tokenSecret("a", old, forged(t, testUID, otherUID), controllertest.BoundTo(otherUID))}, holds: map[string]Progress{"a": blocked(Mismatch)},
		},
		"ForgedNamespace": {
			account: account(), secrets: []*corev1.Secret{tokenSecret("a", old, forged(t, "system:serviceaccount:", "system:serviceaccount:kube-system:"))},
			holds: map[string]Progress{"a": blocked(Mismatch)},
		},
		"OtherName":       {account: account(), secrets: []*corev1.Secret{tokenSecret("a", old, annotated(corev1.ServiceAccountNameKey, "admin"))}, holds: map[string]Progress{"a": blocked(Mismatch)}},
		"NoUIDAnnotation": {account: account(), secrets: []*corev1.Secret{tokenSecret("a", old, controllertest.BoundTo(""))}, holds: map[string]Progress{"a": blocked(Mismatch)}},

		"SuccessorIsEmpty": {
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"))},
			holds: map[string]Progress{"a": {State: Filling}},
		},
		"SuccessorIsFilled": {
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh)},
			want: []string{"reference a by b"}, holds: map[string]Progress{"a": {State: Switching}},
		},
		"SuccessorIsRespelled": {
			reason:  "most clients take the white space at its ends away, and kube-apiserver refuses what is left",
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh, spaced)},
			holds: map[string]Progress{"a": {State: Filling}},
		},
		"SuccessorIsReferenced": {
			account: account(referencing("b", "a")), secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh)},
			holds: map[string]Progress{"a": {State: Replaced}},
		},
		"SuccessorIsInvalid": {
			reason:  "it was taken away, and so is not made again",
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh, labelled(tokensecrets.InvalidSinceLabel, "2026-01-01"))},
			holds: map[string]Progress{"a": {State: Replaced}},
		},
		"SuccessorGoes": {
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh, terminating)},
			want: []string{"create a"}, holds: map[string]Progress{"a": {State: Due}},
		},
		"SuccessorOfAnEarlierOne": {
			reason:  "a was deleted and made again",
			account: account(referencing("a", "b")),
			secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", annotated(tokensecrets.ReplacesAnnotation, "a/uid-before"), fresh)},
			want:    []string{"create a"}, holds: map[string]Progress{"a": {State: Due}},
		},
		"SuccessorIsRetiredToo": {
			reason:  "the next rotation",
			account: account(referencing("b", "a")),
			secrets: []*corev1.Secret{tokenSecret("a", signedBy(t, strangePEM(), testUID)), tokenSecret("b", replacing("a"), old)},
			want:    []string{"create b"}, holds: map[string]Progress{"b": {State: Due}},
		},
		"SuccessorWasFilledElsewhere": {
			reason:  "somebody else fills Secrets with the old key, and would fill the next one",
			account: account(referencing("b", "a")), secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"), old, filledBy("kube-controller-manager"))},
			want: []string{"warn b"}, holds: map[string]Progress{"a": {State: Replaced}, "b": blocked(FilledElsewhere)},
		},
		"SuccessorWasFilledElsewhereAndIsNotReferenced": {
			reason:  "nobody is led to a key that is to go, and one more Secret would be no better",
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"), old, filledBy("kube-controller-manager"))},
			want: []string{"warn b"}, holds: map[string]Progress{"a": {State: Filling}, "b": blocked(FilledElsewhere)},
		},
		"SuccessorHasTheSameKey": {
			reason:  "we have filled it ourselves, when a rollback had made the key the active one",
			account: account(referencing("b", "a")), secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"), old, filledBy("sa-controller-manager"))},
			want: []string{"create b"}, holds: map[string]Progress{"a": {State: Replaced}, "b": {State: Due}},
		},
		"SuccessorHasTheSameKeyAndIsNotReferenced": {
			reason:  "a rollback, and then a rotation",
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"), old, filledBy("sa-controller-manager"))},
			want: []string{"create a", "discard b"}, holds: map[string]Progress{"a": {State: Due}, "b": {State: Discarding}},
		},
		"SuccessorHasARetiredKeyAndIsUsed": {
			reason:  "who uses it goes on, and gets one of its own",
			account: account(referencing("a")),
			secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"), old, labelled(tokensecrets.LastUsedLabel, "2026-05-09"))},
			want:    []string{"create a", "create b"}, holds: map[string]Progress{"a": {State: Due}, "b": {State: Due}},
		},
		"SuccessorHasARetiredKeyAndAnotherFollows": {
			account: account(referencing("a")),
			secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"), old, createdAt(noon().Add(-2*time.Second))), tokenSecret("c", replacing("a"), fresh, createdAt(noon().Add(-time.Second)))},
			want:    []string{"reference a by c", "discard b"}, holds: map[string]Progress{"a": {State: Switching}, "b": {State: Discarding}},
		},
		"SuccessorHasAnUnknownKey": {
			reason:  "another replica may be ahead",
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"), signedBy(t, strangePEM(), testUID))},
			holds: map[string]Progress{"a": {State: Filling}},
		},
		"RolledBackBeforeTheSuccessorWasFilled": {
			reason:  "the predecessor's key is the active one again",
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", fresh), tokenSecret("b", replacing("a"))},
			want: []string{"discard b"},
		},
		"RolledBackAndThenTheSuccessorWasFilled": {
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", fresh), tokenSecret("b", replacing("a"), fresh)},
			want: []string{"discard b"},
		},
		"RolledBackAfterTheSuccessorWasFilled": {
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", fresh), tokenSecret("b", replacing("a"), old)},
			want: []string{"discard b"}, holds: map[string]Progress{"b": {State: Discarding}},
		},
		"RolledBackAfterTheSuccessorWasReferenced": {
			account: account(referencing("b", "a")), secrets: []*corev1.Secret{tokenSecret("a", fresh), tokenSecret("b", replacing("a"), old)},
			want: []string{"create b"}, holds: map[string]Progress{"b": {State: Due}},
		},
		"RolledBackAndTheSuccessorIsUsed": {
			account: account(referencing("a")), secrets: []*corev1.Secret{tokenSecret("a", fresh), tokenSecret("b", replacing("a"), fresh, labelled(tokensecrets.LastUsedLabel, "2026-05-09"))},
		},

		"TwoSuccessors": {
			reason:  "an answer was lost",
			account: account(referencing("a")),
			secrets: []*corev1.Secret{
				tokenSecret("a", old), tokenSecret("c", replacing("a"), fresh, createdAt(noon().Add(-2*time.Second))),
				tokenSecret("b", replacing("a"), createdAt(noon().Add(-time.Second))),
			},
			want: []string{"reference a by c", "discard b"}, holds: map[string]Progress{"a": {State: Switching}},
		},
		"TwoSuccessorsOneReferenced": {
			account: account(referencing("b", "a")),
			secrets: []*corev1.Secret{
				tokenSecret("a", old), tokenSecret("c", replacing("a"), fresh, createdAt(noon().Add(-2*time.Second))),
				tokenSecret("b", replacing("a"), fresh, createdAt(noon().Add(-time.Second))),
			},
			want: []string{"discard c"}, holds: map[string]Progress{"a": {State: Replaced}},
		},
		"SuccessorCopied": {
			reason:  "the copy has all labels and annotations, and belongs to whom made it",
			account: account(referencing("b", "a")),
			secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh), tokenSecret("c", replacing("a"), fresh, copied)},
			holds:   map[string]Progress{"a": {State: Replaced}},
		},
		"TwoSuccessorsOneUsed": {
			account: account(referencing("b", "a")),
			secrets: []*corev1.Secret{tokenSecret("a", old), tokenSecret("c", replacing("a"), fresh, labelled(tokensecrets.LastUsedLabel, "2026-05-10")), tokenSecret("b", replacing("a"), fresh)},
			holds:   map[string]Progress{"a": {State: Replaced}},
		},
		"PredecessorGone": {
			reason:  "it was deleted before anybody was led to the new one, which is nobody's then",
			account: account(), secrets: []*corev1.Secret{tokenSecret("b", replacing("a"), fresh)}, want: []string{"discard b"},
		},
		"PredecessorGoneLongAgo": {
			reason:  "somebody has taken the reference away, for a reason",
			account: account(), secrets: []*corev1.Secret{tokenSecret("b", replacing("a"), fresh, createdAt(noon().Add(-2*time.Hour)))},
		},
		"PredecessorGoneAuto":     {reason: "the token controller sees to it", account: account(), auto: true, secrets: []*corev1.Secret{tokenSecret("b", replacing("a"), fresh)}},
		"PredecessorGoneReferred": {account: account(referencing("b")), secrets: []*corev1.Secret{tokenSecret("b", replacing("a"), fresh)}},
		"PredecessorGoneUserMade": {
			reason:  "somebody has written the annotation by hand",
			account: account(), secrets: []*corev1.Secret{tokenSecret("b", replacing("a"), fresh, userMade)},
		},
		"PredecessorMarkedInvalid": {
			account: account(referencing("a")),
			secrets: []*corev1.Secret{tokenSecret("a", old, labelled(tokensecrets.InvalidSinceLabel, "2026-01-01")), tokenSecret("b", replacing("a"), fresh)},
			want:    []string{"discard b"}, holds: map[string]Progress{"a": blocked(Invalid)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			secrets := observeAll(tc.secrets...)
			for range 2 { // whatever their order
				var got []string
				for _, step := range observe(tc.account, secrets, rotated(t)).plan(tc.auto, noon()) {
					line := string(step.action) + " " + step.Secret.Name
					if step.Successor != nil {
						line += " by " + step.Successor.Name
					}
					got = append(got, line)
				}
				testutil.Check(t, tc.reason+": steps", tc.want, got)
				slices.Reverse(secrets)
			}
			holds := map[string]Progress{}
			for _, candidate := range Candidates(secrets, func(cache.ObjectName) *corev1.ServiceAccount { return tc.account }, rotated(t)) {
				holds[candidate.Secret.Name] = candidate.Progress
			}
			want := tc.holds
			if want == nil {
				want = map[string]Progress{}
			}
			testutil.Check(t, tc.reason+": holders", want, holds)
		})
	}
}

// forged leaves the header of the token, and so the key ID, and writes other claims behind it.
func forged(t *testing.T, old, changed string) func(*corev1.Secret) {
	t.Helper()
	return func(secret *corev1.Secret) {
		segments := strings.Split(string(secret.Data[corev1.ServiceAccountTokenKey]), ".")
		claims, err := base64.RawURLEncoding.DecodeString(segments[1])
		testutil.Must(t, err)
		segments[1] = base64.RawURLEncoding.EncodeToString([]byte(strings.ReplaceAll(string(claims), old, changed)))
		segments[2] = base64.RawURLEncoding.EncodeToString(make([]byte, 64))
		secret.Data[corev1.ServiceAccountTokenKey] = []byte(strings.Join(segments, "."))
	}
}
