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
	due, filling, switching := progress{"a": {State: Due}}, progress{"a": {State: Filling}}, progress{"a": {State: Switching}}
	replaced, mismatch := progress{"a": {State: Replaced}}, progress{"a": blocked(Mismatch)}
	byKCM, byUs := filledBy(meta.UpstreamFieldManager), filledBy(meta.FieldManager)
	used := labelled(tokensecrets.LastUsedLabel, "2026-05-09")
	a := func(changes ...func(*corev1.Secret)) *corev1.Secret { return tokenSecret("a", changes...) }
	// b and c replace it.
	b := func(changes ...func(*corev1.Secret)) *corev1.Secret {
		return tokenSecret("b", append(changes, replacing("a"))...)
	}
	c := func(changes ...func(*corev1.Secret)) *corev1.Secret {
		return tokenSecret("c", append(changes, replacing("a"))...)
	}
	ago := func(d time.Duration) func(*corev1.Secret) { return createdAt(noon().Add(-d)) }
	writtenByKCM := func(fields string) func(*corev1.Secret) {
		return controllertest.WrittenBy(meta.UpstreamFieldManager, fields)
	}
	unknown := withToken(t, strangePEM(), testUID)
	kcm := func(secret *corev1.Secret) {
		userMade(secret)
		byKCM(secret)
	}
	cases := map[string]struct {
		reason    string
		refs      string                       // of the account app
		account   func(*corev1.ServiceAccount) // changes it
		noAccount bool
		secrets   list
		auto      bool
		want      steps
		holds     progress
	}{
		"Due":         {refs: "a", secrets: list{a(old)}, want: steps{"create a"}, holds: due},
		"ActiveKey":   {refs: "a", secrets: list{a(fresh)}},
		"NoToken":     {refs: "a", secrets: list{a()}},
		"UnknownKey":  {reason: "another replica may be ahead", refs: "a", secrets: list{a(unknown)}},
		"NotReferred": {reason: "the list proves nothing, in either direction", secrets: list{a(old)}, want: steps{"create a"}, holds: due},
		"MadeByKCM":   {refs: "a", secrets: list{a(old, kcm)}, want: steps{"create a"}, holds: due},
		"NamedAsByKCM": {
			reason: "users name Secrets like this too, and a replaced Secret is deleted one day", refs: "app-token-x7k2p",
			secrets: list{tokenSecret("app-token-x7k2p", old, userMade, unmanaged)}, holds: progress{"app-token-x7k2p": blocked(UserMade)},
		},
		"UserMade": {
			reason: "a reference alone proves nothing", refs: "a", secrets: list{a(old, userMade)}, holds: progress{"a": blocked(UserMade)},
		},
		"UserMadeFilledByKCM": {
			reason: "it fills those of users too", secrets: list{a(old, userMade, writtenByKCM(`{"f:data":{"f:token":{}}}`))},
			holds: progress{"a": blocked(UserMade)},
		},
		"UserMadeBrokenManagedFields": {
			secrets: list{a(old, userMade, writtenByKCM(`{"f:type"`))}, holds: progress{"a": blocked(UserMade)},
		},
		"MadeByUsWithoutOurLabel": {
			secrets: list{a(old, func(s *corev1.Secret) { s.Labels = nil })}, want: steps{"create a"}, holds: due,
		},
		"ModeOfOurWord": {
			secrets: list{a(old, mode("user-made"))}, want: steps{"warn a"}, holds: progress{"a": blocked(UnknownMode)},
		},
		"UserMadeSideBySide": {secrets: list{a(old, userMade, mode("side-by-side"))}, want: steps{"create a"}, holds: due},
		"Never":              {secrets: list{a(old, mode("never"))}, holds: progress{"a": blocked(Never)}},
		"UnknownMode":        {secrets: list{a(old, mode("always"))}, want: steps{"warn a"}, holds: progress{"a": blocked(UnknownMode)}},
		"MarkedInvalid": {
			reason: "nobody is given back what was taken from them", refs: "a", secrets: list{a(old, invalid)},
			holds: progress{"a": blocked(Invalid)},
		},
		"Terminating":           {secrets: list{a(old, terminating)}, holds: progress{"a": blocked(Terminating)}},
		"NoAccount":             {noAccount: true, secrets: list{a(old)}, holds: mismatch},
		"AccountMadeAnew":       {reason: "the token is for the one before", account: recreated, secrets: list{a(old)}, holds: mismatch},
		"AccountTerminating":    {account: controllertest.TerminatingAccount, secrets: list{a(old)}, holds: mismatch},
		"TokenOfAnotherAccount": {secrets: list{a(withToken(t, oldPEM(), otherUID))}, holds: mismatch},
		"Respelled": {
			reason: "kube-apiserver takes it, so that it holds the key; what to do about it is for a person to say", refs: "a",
			secrets: list{a(old, spaced)}, holds: mismatch,
		},

		"Forged": {
			reason: "signed by nobody: it is replaced, as an empty Secret would be filled", secrets: list{a(old, forged(t, "", ""))},
			want: steps{"create a"}, holds: due,
		},
		"ForgedUIDInBoth": {
			reason:  "an account that was deleted gets no token",
			secrets: list{a(old, forged(t, testUID, otherUID), controllertest.BoundTo(otherUID))}, holds: mismatch,
		},
		"OtherName":       {secrets: list{a(old, annotated(corev1.ServiceAccountNameKey, "admin"))}, holds: mismatch},
		"NoUIDAnnotation": {secrets: list{a(old, controllertest.BoundTo(""))}, holds: mismatch},

		"SuccessorIsEmpty":  {refs: "a", secrets: list{a(old), b()}, holds: filling},
		"SuccessorIsFilled": {refs: "a", secrets: list{a(old), b(fresh)}, want: steps{"reference a by b"}, holds: switching},
		"SuccessorIsRespelled": {
			reason: "most clients take the white space at its ends away, and kube-apiserver refuses what is left", refs: "a",
			secrets: list{a(old), b(fresh, spaced)}, holds: filling,
		},
		"SuccessorIsReferenced": {refs: "b a", secrets: list{a(old), b(fresh)}, holds: replaced},
		"SuccessorIsInvalid": {
			reason: "it was taken away, and so is not made again", refs: "a", secrets: list{a(old), b(fresh, invalid)}, holds: replaced,
		},
		"SuccessorGoes": {refs: "a", secrets: list{a(old), b(fresh, terminating)}, want: steps{"create a"}, holds: due},
		"SuccessorIsRetiredToo": {
			reason: "the next rotation", refs: "b a", secrets: list{a(unknown), b(old)}, want: steps{"create b"},
			holds: progress{"b": {State: Due}},
		},
		"SuccessorWasFilledElsewhere": {
			reason: "another controller fills Secrets with the old key, and would fill the next one", refs: "b a",
			secrets: list{a(old), b(old, byKCM)},
			want:    steps{"warn b"}, holds: progress{"a": {State: Replaced}, "b": blocked(FilledElsewhere)},
		},
		"SuccessorWasFilledElsewhereAndIsNotReferenced": {
			reason: "nobody is led to a key that is to go, and one more Secret would be no better", refs: "a",
			secrets: list{a(old), b(old, byKCM)},
			want:    steps{"warn b"}, holds: progress{"a": {State: Filling}, "b": blocked(FilledElsewhere)},
		},
		"SuccessorHasTheSameKey": {
			reason: "we have filled it ourselves, when a rollback had made the key the active one", refs: "b a",
			secrets: list{a(old), b(old, byUs)}, want: steps{"create b"}, holds: progress{"a": {State: Replaced}, "b": {State: Due}},
		},
		"SuccessorHasTheSameKeyAndIsNotReferenced": {
			reason: "a rollback, and then a rotation", refs: "a", secrets: list{a(old), b(old, byUs)}, want: steps{"create a", "discard b"},
			holds: progress{"a": {State: Due}, "b": {State: Discarding}},
		},
		"SuccessorHasARetiredKeyAndIsUsed": {
			reason: "who uses it goes on, and gets one of its own", refs: "a", secrets: list{a(old), b(old, used)},
			want: steps{"create a", "create b"}, holds: progress{"a": {State: Due}, "b": {State: Due}},
		},
		"SuccessorHasARetiredKeyAndAnotherFollows": {
			refs: "a", secrets: list{a(old), b(old, ago(2*time.Second)), c(fresh, ago(time.Second))},
			want:  steps{"reference a by c", "discard b"},
			holds: progress{"a": {State: Switching}, "b": {State: Discarding}},
		},
		"SuccessorHasAnUnknownKey": {
			reason: "another replica may be ahead", refs: "a", secrets: list{a(old), b(unknown)}, holds: filling,
		},
		"RolledBackAndThenTheSuccessorWasFilled": {refs: "a", secrets: list{a(fresh), b(fresh)}, want: steps{"discard b"}},
		"RolledBackAfterTheSuccessorWasFilled": {
			refs: "a", secrets: list{a(fresh), b(old)}, want: steps{"discard b"}, holds: progress{"b": {State: Discarding}},
		},
		"RolledBackAfterTheSuccessorWasReferenced": {
			refs: "b a", secrets: list{a(fresh), b(old)}, want: steps{"create b"}, holds: progress{"b": {State: Due}},
		},
		"RolledBackAndTheSuccessorIsUsed": {refs: "a", secrets: list{a(fresh), b(fresh, used)}},

		"TwoSuccessors": {
			reason:  "an answer was lost",
			refs:    "a",
			secrets: list{a(old), c(fresh, ago(2*time.Second)), b(ago(time.Second))},
			want:    steps{"reference a by c", "discard b"}, holds: switching,
		},
		"TwoSuccessorsAndTheReferencedOneIsInvalid": {
			refs: "b a", secrets: list{a(old), b(invalid, ago(time.Second)), c(fresh, ago(2*time.Second))},
			want: steps{"discard c"}, holds: replaced,
		},
		"UsersAlone": {
			reason: "the successor of a Secret that no list names is in no list either", holds: replaced,
			secrets: list{a(old, userMade, mode("side-by-side")), b(fresh, func(s *corev1.Secret) { s.Labels = nil })},
		},
		"SuccessorCopied": {
			reason: "the copy has all labels and annotations, and belongs to whom made it", refs: "b a",
			secrets: list{a(old), b(fresh), c(fresh, copied)}, holds: replaced,
		},
		"PredecessorGone": {
			reason: "it was deleted before anybody was led to the new one, which is nobody's then", secrets: list{b(fresh)},
			want: steps{"discard b"},
		},
		"PredecessorGoneLongAgo":  {reason: "a user has taken the reference away, for a reason", secrets: list{b(fresh, ago(2*time.Hour))}},
		"PredecessorGoneAuto":     {reason: "the token controller sees to it", auto: true, secrets: list{b(fresh)}},
		"PredecessorGoneUserMade": {reason: "a user has written the annotation by hand", secrets: list{b(fresh, userMade)}},
		"PredecessorMarkedInvalid": {
			refs: "a", secrets: list{a(old, invalid), b(fresh)}, want: steps{"discard b"}, holds: progress{"a": blocked(Invalid)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			app := account(referencing(strings.Fields(tc.refs)...))
			if tc.account != nil {
				tc.account(app)
			}
			if tc.noAccount {
				app = nil
			}
			secrets := observeAll(tc.secrets...)
			for range 2 { // whatever their order
				var got []string
				for _, step := range observe(app, secrets, rotated()).plan(tc.auto, noon()) {
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
			for _, candidate := range Candidates(secrets, func(cache.ObjectName) *corev1.ServiceAccount { return app }, rotated()) {
				holds[candidate.Secret.Name] = candidate.Progress
			}
			if len(tc.holds)+len(holds) > 0 {
				testutil.Check(t, tc.reason+": holders", tc.holds, holds)
			}
		})
	}
}

// forged leaves the header of the token, and so the key ID, and writes other claims behind it.
func forged(t *testing.T, old, changed string) func(*corev1.Secret) {
	t.Helper()
	return func(secret *corev1.Secret) {
		segments := strings.Split(string(secret.Data[corev1.ServiceAccountTokenKey]), ".")
		claims := testutil.Get(base64.RawURLEncoding.DecodeString(segments[1]))(t)
		segments[1] = base64.RawURLEncoding.EncodeToString([]byte(strings.ReplaceAll(string(claims), old, changed)))
		segments[2] = base64.RawURLEncoding.EncodeToString(make([]byte, 64))
		secret.Data[corev1.ServiceAccountTokenKey] = []byte(strings.Join(segments, "."))
	}
}

func invalid(secret *corev1.Secret) { controllertest.InvalidSince("2026-01-01")(secret) }
