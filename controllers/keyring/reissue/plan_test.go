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
	type (
		list     = []*corev1.Secret
		steps    = []string
		progress = map[string]Progress
	)
	due, mismatch := progress{"a": {State: Due}}, progress{"a": blocked(Mismatch)}
	byKCM, byUs := filledBy(meta.UpstreamFieldManager), filledBy(meta.FieldManager)
	used := labelled(tokensecrets.LastUsedLabel, "2026-05-09")
	kcm := func(secret *corev1.Secret) {
		userMade(secret)
		byKCM(secret)
	}
	cases := map[string]struct {
		reason  string
		account *corev1.ServiceAccount
		secrets list
		auto    bool
		want    steps
		holds   progress
	}{
		"Due":       {account: account(referencing("a")), secrets: list{tokenSecret("a", old)}, want: steps{"create a"}, holds: due},
		"ActiveKey": {account: account(referencing("a")), secrets: list{tokenSecret("a", fresh)}},
		"NoToken":   {account: account(referencing("a")), secrets: list{tokenSecret("a")}},
		"UnknownKey": {
			reason: "another replica may be ahead", account: account(referencing("a")),
			secrets: list{tokenSecret("a", signedBy(t, strangePEM(), testUID))},
		},
		"NotReferred": {
			reason: "the list proves nothing, in either direction", account: account(), secrets: list{tokenSecret("a", old)},
			want: steps{"create a"}, holds: due,
		},
		"MadeByKCM": {account: account(referencing("a")), secrets: list{tokenSecret("a", old, kcm)}, want: steps{"create a"}, holds: due},
		"NamedAsByKCM": {
			reason:  "users name Secrets like this too, and a replaced Secret is deleted one day",
			account: account(referencing("app-token-x7k2p")), secrets: list{tokenSecret("app-token-x7k2p", old, userMade, unmanaged)},
			holds: progress{"app-token-x7k2p": blocked(UserMade)},
		},
		"UserMade": {
			reason:  "a reference alone proves nothing",
			account: account(referencing("a")), secrets: list{tokenSecret("a", old, userMade)}, holds: progress{"a": blocked(UserMade)},
		},
		"UserMadeSideBySide": {
			account: account(), secrets: list{tokenSecret("a", old, userMade, mode("side-by-side"))},
			want: steps{"create a"}, holds: due,
		},
		"Never": {account: account(), secrets: list{tokenSecret("a", old, mode("never"))}, holds: progress{"a": blocked(Never)}},
		"UnknownMode": {
			account: account(), secrets: list{tokenSecret("a", old, mode("always"))}, want: steps{"warn a"},
			holds: progress{"a": blocked(UnknownMode)},
		},
		"MarkedInvalid": {
			reason:  "nobody is given back what was taken from them",
			account: account(referencing("a")), secrets: list{tokenSecret("a", old, invalid)},
			holds: progress{"a": blocked(Invalid)},
		},
		"Terminating": {account: account(), secrets: list{tokenSecret("a", old, terminating)}, holds: progress{"a": blocked(Terminating)}},
		"NoAccount":   {secrets: list{tokenSecret("a", old)}, holds: mismatch},
		"AccountMadeAnew": {
			reason:  "the token is for the one before",
			account: account(recreated), secrets: list{tokenSecret("a", old)},
			holds: mismatch,
		},
		"AccountTerminating": {
			account: account(func(a *corev1.ServiceAccount) { a.DeletionTimestamp = &metav1.Time{Time: noon()} }),
			secrets: list{tokenSecret("a", old)}, holds: mismatch,
		},
		"TokenOfAnotherAccount": {
			account: account(), secrets: list{tokenSecret("a", signedBy(t, oldPEM(), otherUID))}, holds: mismatch,
		},
		"Respelled": {
			reason:  "kube-apiserver takes it, so that it holds the key; what to do about it is for a person to say",
			account: account(referencing("a")), secrets: list{tokenSecret("a", old, spaced)}, holds: mismatch,
		},

		"Forged": {
			reason:  "signed by nobody: it is replaced, as an empty Secret would be filled",
			account: account(), secrets: list{tokenSecret("a", old, forged(t, "", ""))}, want: steps{"create a"}, holds: due,
		},
		"ForgedUID": {account: account(), secrets: list{tokenSecret("a", old, forged(t, testUID, otherUID))}, holds: mismatch},
		"ForgedUIDInBoth": {
			reason:  "an account that was deleted gets no token",
			account: account(), secrets: list{tokenSecret("a", old, forged(t, testUID, otherUID), controllertest.BoundTo(otherUID))},
			holds: mismatch,
		},
		"ForgedNamespace": {
			account: account(), secrets: list{tokenSecret("a", old, forged(t, "system:serviceaccount:", "system:serviceaccount:kube-system:"))},
			holds: mismatch,
		},
		"OtherName": {
			account: account(), secrets: list{tokenSecret("a", old, annotated(corev1.ServiceAccountNameKey, "admin"))}, holds: mismatch,
		},
		"NoUIDAnnotation": {account: account(), secrets: list{tokenSecret("a", old, controllertest.BoundTo(""))}, holds: mismatch},

		"SuccessorIsEmpty": {
			account: account(referencing("a")), secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"))},
			holds: progress{"a": {State: Filling}},
		},
		"SuccessorIsFilled": {
			account: account(referencing("a")), secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh)},
			want: steps{"reference a by b"}, holds: progress{"a": {State: Switching}},
		},
		"SuccessorIsRespelled": {
			reason:  "most clients take the white space at its ends away, and kube-apiserver refuses what is left",
			account: account(referencing("a")), secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh, spaced)},
			holds: progress{"a": {State: Filling}},
		},
		"SuccessorIsReferenced": {
			account: account(referencing("b", "a")), secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh)},
			holds: progress{"a": {State: Replaced}},
		},
		"SuccessorIsInvalid": {
			reason:  "it was taken away, and so is not made again",
			account: account(referencing("a")), secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh, invalid)},
			holds: progress{"a": {State: Replaced}},
		},
		"SuccessorGoes": {
			account: account(referencing("a")), secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh, terminating)},
			want: steps{"create a"}, holds: due,
		},
		"SuccessorOfAnEarlierOne": {
			reason:  "a was deleted and made again",
			account: account(referencing("a", "b")),
			secrets: list{tokenSecret("a", old), tokenSecret("b", annotated(tokensecrets.ReplacesAnnotation, "a/uid-before"), fresh)},
			want:    []string{"create a"}, holds: due,
		},
		"SuccessorIsRetiredToo": {
			reason:  "the next rotation",
			account: account(referencing("b", "a")),
			secrets: list{tokenSecret("a", signedBy(t, strangePEM(), testUID)), tokenSecret("b", replacing("a"), old)},
			want:    []string{"create b"}, holds: progress{"b": {State: Due}},
		},
		"SuccessorWasFilledElsewhere": {
			reason:  "somebody else fills Secrets with the old key, and would fill the next one",
			account: account(referencing("b", "a")), secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"), old, byKCM)},
			want: steps{"warn b"}, holds: progress{"a": {State: Replaced}, "b": blocked(FilledElsewhere)},
		},
		"SuccessorWasFilledElsewhereAndIsNotReferenced": {
			reason:  "nobody is led to a key that is to go, and one more Secret would be no better",
			account: account(referencing("a")), secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"), old, byKCM)},
			want: steps{"warn b"}, holds: progress{"a": {State: Filling}, "b": blocked(FilledElsewhere)},
		},
		"SuccessorHasTheSameKey": {
			reason:  "we have filled it ourselves, when a rollback had made the key the active one",
			account: account(referencing("b", "a")), secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"), old, byUs)},
			want: steps{"create b"}, holds: progress{"a": {State: Replaced}, "b": {State: Due}},
		},
		"SuccessorHasTheSameKeyAndIsNotReferenced": {
			reason:  "a rollback, and then a rotation",
			account: account(referencing("a")), secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"), old, byUs)},
			want: steps{"create a", "discard b"}, holds: progress{"a": {State: Due}, "b": {State: Discarding}},
		},
		"SuccessorHasARetiredKeyAndIsUsed": {
			reason:  "who uses it goes on, and gets one of its own",
			account: account(referencing("a")),
			secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"), old, used)},
			want:    []string{"create a", "create b"}, holds: progress{"a": {State: Due}, "b": {State: Due}},
		},
		"SuccessorHasARetiredKeyAndAnotherFollows": {
			account: account(referencing("a")),
			secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"), old, createdAt(noon().Add(-2*time.Second))),
				tokenSecret("c", replacing("a"), fresh, createdAt(noon().Add(-time.Second)))},
			want: []string{"reference a by c", "discard b"}, holds: progress{"a": {State: Switching}, "b": {State: Discarding}},
		},
		"SuccessorHasAnUnknownKey": {
			reason:  "another replica may be ahead",
			account: account(referencing("a")),
			secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"), signedBy(t, strangePEM(), testUID))},
			holds:   progress{"a": {State: Filling}},
		},
		"RolledBackBeforeTheSuccessorWasFilled": {
			reason:  "the predecessor's key is the active one again",
			account: account(referencing("a")), secrets: list{tokenSecret("a", fresh), tokenSecret("b", replacing("a"))},
			want: steps{"discard b"},
		},
		"RolledBackAndThenTheSuccessorWasFilled": {
			account: account(referencing("a")), secrets: list{tokenSecret("a", fresh), tokenSecret("b", replacing("a"), fresh)},
			want: steps{"discard b"},
		},
		"RolledBackAfterTheSuccessorWasFilled": {
			account: account(referencing("a")), secrets: list{tokenSecret("a", fresh), tokenSecret("b", replacing("a"), old)},
			want: steps{"discard b"}, holds: progress{"b": {State: Discarding}},
		},
		"RolledBackAfterTheSuccessorWasReferenced": {
			account: account(referencing("b", "a")), secrets: list{tokenSecret("a", fresh), tokenSecret("b", replacing("a"), old)},
			want: steps{"create b"}, holds: progress{"b": {State: Due}},
		},
		"RolledBackAndTheSuccessorIsUsed": {
			account: account(referencing("a")), secrets: list{tokenSecret("a", fresh), tokenSecret("b", replacing("a"), fresh, used)},
		},

		"TwoSuccessors": {
			reason:  "an answer was lost",
			account: account(referencing("a")),
			secrets: list{
				tokenSecret("a", old), tokenSecret("c", replacing("a"), fresh, createdAt(noon().Add(-2*time.Second))),
				tokenSecret("b", replacing("a"), createdAt(noon().Add(-time.Second))),
			},
			want: steps{"reference a by c", "discard b"}, holds: progress{"a": {State: Switching}},
		},
		"TwoSuccessorsOneReferenced": {
			account: account(referencing("b", "a")),
			secrets: list{
				tokenSecret("a", old), tokenSecret("c", replacing("a"), fresh, createdAt(noon().Add(-2*time.Second))),
				tokenSecret("b", replacing("a"), fresh, createdAt(noon().Add(-time.Second))),
			},
			want: steps{"discard c"}, holds: progress{"a": {State: Replaced}},
		},
		"SuccessorCopied": {
			reason:  "the copy has all labels and annotations, and belongs to whom made it",
			account: account(referencing("b", "a")),
			secrets: list{tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh), tokenSecret("c", replacing("a"), fresh, copied)},
			holds:   progress{"a": {State: Replaced}},
		},
		"TwoSuccessorsOneUsed": {
			account: account(referencing("b", "a")),
			secrets: list{tokenSecret("a", old), tokenSecret("c", replacing("a"), fresh, labelled(tokensecrets.LastUsedLabel, "2026-05-10")),
				tokenSecret("b", replacing("a"), fresh)},
			holds: progress{"a": {State: Replaced}},
		},
		"PredecessorGone": {
			reason:  "it was deleted before anybody was led to the new one, which is nobody's then",
			account: account(), secrets: list{tokenSecret("b", replacing("a"), fresh)}, want: steps{"discard b"},
		},
		"PredecessorGoneLongAgo": {
			reason:  "somebody has taken the reference away, for a reason",
			account: account(), secrets: list{tokenSecret("b", replacing("a"), fresh, createdAt(noon().Add(-2*time.Hour)))},
		},
		"PredecessorGoneAuto": {
			reason: "the token controller sees to it", account: account(), auto: true, secrets: list{tokenSecret("b", replacing("a"), fresh)},
		},
		"PredecessorGoneReferred": {account: account(referencing("b")), secrets: list{tokenSecret("b", replacing("a"), fresh)}},
		"PredecessorGoneUserMade": {
			reason:  "somebody has written the annotation by hand",
			account: account(), secrets: list{tokenSecret("b", replacing("a"), fresh, userMade)},
		},
		"PredecessorMarkedInvalid": {
			account: account(referencing("a")),
			secrets: list{tokenSecret("a", old, invalid), tokenSecret("b", replacing("a"), fresh)},
			want:    []string{"discard b"}, holds: progress{"a": blocked(Invalid)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			secrets := observeAll(tc.secrets...)
			for range 2 { // whatever their order
				var got []string
				for _, step := range observe(tc.account, secrets, rotated()).plan(tc.auto, noon()) {
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
			for _, candidate := range Candidates(secrets, func(cache.ObjectName) *corev1.ServiceAccount { return tc.account }, rotated()) {
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
