// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

var app = cache.NewObjectName("ns", "app")

func TestReissue(t *testing.T) {
	t.Parallel()
	old, fresh := withOld(t), withNew(t)
	const (
		getAccount = "get serviceaccounts app"
		getA       = "get secrets a"
		createsNew = "create secrets app-token-new01 for app/uid-app replaces a/uid-a labels sa-controller-manager/auto-created data"
	)
	cases := map[string]struct {
		reason  string
		objects []runtime.Object
		live    []runtime.Object // newer than what is cached
		gone    []string         // Secrets that only the cache has
		want    []string
		told    []string
		counted map[string]float64
	}{
		"Create": {
			objects: []runtime.Object{account(referencing("a")), tokenSecret("a", old)},
			want:    []string{getA, getAccount, createsNew},
		},
		"Reference": {
			objects: []runtime.Object{account(referencing("a")), tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh)},
			want:    []string{getAccount, "patch serviceaccounts app [uid-app 10] first b"},
			told:    []string{"Normal TokenSecretReplaced"},
			counted: map[string]float64{"done": 1},
		},
		"Discard": {
			objects: []runtime.Object{account(), tokenSecret("b", replacing("a"), fresh)},
			want:    []string{"get secrets b", getAccount, "delete secrets b [uid-b 20]"},
			told:    []string{"Normal TokenSecretDiscarded"},
		},
		"UnknownMode": {
			objects: []runtime.Object{account(), tokenSecret("a", old, mode("sometimes"))},
			told:    []string{"Warning UnknownReissueMode"},
		},
		"FilledElsewhere": {
			objects: []runtime.Object{account(referencing("b", "a")), tokenSecret("a", old),
				tokenSecret("b", replacing("a"), old, filledBy("kube-controller-manager"))},
			told: []string{"Warning SecondTokenController"},
		},
		"DiscardAfterARollback": {
			objects: []runtime.Object{account(referencing("a")), tokenSecret("a", fresh), tokenSecret("b", replacing("a"), fresh)},
			want:    []string{"get secrets b", getAccount, "delete secrets b [uid-b 20]"},
			told:    []string{"Normal TokenSecretDiscarded"},
		},
		"DiscardAfterARollbackIsTooLate": {
			reason:  "somebody was led to it",
			objects: []runtime.Object{account(referencing("a")), tokenSecret("a", fresh), tokenSecret("b", replacing("a"), fresh)},
			live:    []runtime.Object{account(referencing("b", "a"))},
			want:    []string{"get secrets b", getAccount},
		},
		"Nothing": {objects: []runtime.Object{account(referencing("a")), tokenSecret("a", fresh)}},

		"GoneMeanwhile": {objects: []runtime.Object{account(), tokenSecret("a", old)}, gone: []string{"a"}, want: []string{getA}},
		"MadeAnewMeanwhile": {
			objects: []runtime.Object{account(), tokenSecret("a", old)},
			live:    []runtime.Object{tokenSecret("a", old, func(s *corev1.Secret) { s.UID = otherUID })}, want: []string{getA},
		},
		"MarkedMeanwhile": {
			reason:  "the label counts, however late it comes",
			objects: []runtime.Object{account(), tokenSecret("a", old)},
			live:    []runtime.Object{tokenSecret("a", old, labelled(tokensecrets.InvalidSinceLabel, "2026-05-10"))},
			want:    []string{getA, getAccount},
		},
		"OptedOutMeanwhile": {
			objects: []runtime.Object{account(), tokenSecret("a", old)},
			live:    []runtime.Object{tokenSecret("a", old, mode("never"))},
			want:    []string{getA, getAccount},
		},
		"AccountMadeAnewMeanwhile": {
			reason:  "or the new account would get the token of the old one",
			objects: []runtime.Object{account(), tokenSecret("a", old)},
			live:    []runtime.Object{account(recreated)},
			want:    []string{getA, getAccount},
		},
		"AccountMadeAnewBeforeTheReference": {
			objects: []runtime.Object{account(), tokenSecret("a", old), tokenSecret("b", replacing("a"), fresh)},
			live:    []runtime.Object{account(recreated)},
			want:    []string{getAccount},
		},
		"FilledAgainMeanwhile": {
			reason:  "its token was removed, and the new one has the active key",
			objects: []runtime.Object{account(), tokenSecret("a", old)},
			live:    []runtime.Object{tokenSecret("a", fresh)},
			want:    []string{getA, getAccount},
		},
		"NotSignedByItsKey": {
			reason: "the writer of the key ID did not have the key",
			objects: []runtime.Object{account(), tokenSecret("a", old, func(s *corev1.Secret) {
				signed := strings.Split(string(s.Data[corev1.ServiceAccountTokenKey]), ".")
				other := strings.Split(string(tokenSecret("other", old).Data[corev1.ServiceAccountTokenKey]), ".")
				s.Data[corev1.ServiceAccountTokenKey] = []byte(strings.Join([]string{signed[0], signed[1], other[2]}, "."))
			})},
			want: []string{getA, getAccount}, told: []string{"Warning TokenNotReissued"}, counted: map[string]float64{"refused": 1},
		},
		"UsedBeforeItWasDiscarded": {
			objects: []runtime.Object{account(), tokenSecret("b", replacing("a"), fresh)},
			live:    []runtime.Object{tokenSecret("b", replacing("a"), fresh, labelled(tokensecrets.LastUsedLabel, "2026-05-10"))},
			want:    []string{"get secrets b", getAccount},
		},
		"ReferencedBeforeItWasDiscarded": {
			objects: []runtime.Object{account(), tokenSecret("b", replacing("a"), fresh)},
			live:    []runtime.Object{account(referencing("b"))},
			want:    []string{"get secrets b", getAccount},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			w.Live(t, tc.live...)
			for _, name := range tc.gone {
				w.Delete(t, tokenSecret(name))
			}
			w.reissues(t, tc.reason, tc.want...)
			testutil.Check(t, tc.reason+": events", tc.told, w.Events())
			want := tc.counted
			if want == nil {
				want = map[string]float64{}
			}
			testutil.Check(t, tc.reason+": counted", want, w.Series(t, "sacm_token_reissues_total"))
		})
	}
}

// TestNothingIsDone: each of these forbids all writes.
func TestNothingIsDone(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*world)
	}{
		"NotTheNewestRing": {reason: "another leader would undo it", change: func(w *world) { w.held = errors.New("a newer one is published") }},
		"Off":              {change: func(w *world) { w.Off = true }},
		"NotConfirmed": {
			reason: "kube-apiserver does not accept the key: the new tokens would be dead",
			change: func(w *world) { w.unconfirmed = true },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, account(), tokenSecret("a", withOld(t)), tokenSecret("b", withNew(t)))
			tc.change(w)
			w.reissues(t, tc.reason)
		})
	}
}

// TestRefused: a Secret whose token the retired key has not signed is not read again, unless the ring
// or the Secret changes.
func TestRefused(t *testing.T) {
	t.Parallel()
	reads := []string{"get secrets a", "get serviceaccounts app"}
	w := newWorld(t, account(), tokenSecret("a", withOld(t), forged(t, "", "")))
	w.reissues(t, "at first sight", reads...)
	w.reissues(t, "it is known")
	w.Ring.Set(ringOf(newPEM(), oldPEM()))
	w.reissues(t, "another ring", reads...)
	changed := tokenSecret("a", withOld(t), forged(t, "", ""), func(s *corev1.Secret) { s.ResourceVersion = "21" })
	w.Live(t, changed)
	w.Cache(t, changed)
	w.reissues(t, "another version", reads...)
}

// TestRingChangesWithinAnAccount: what is left of an account with many Secrets is not done by a ring
// that is over.
func TestRingChangesWithinAnAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account(), tokenSecret("a", withOld(t)), tokenSecret("b", withOld(t)))
	w.Client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.Ring.Set(ringOf(oldPEM(), newPEM())) // rolled back
		return false, nil, nil
	})
	w.reissues(t, "it stops after the one under way", "get secrets a", "get serviceaccounts app",
		"create secrets app-token-new01 for app/uid-app replaces a/uid-a labels sa-controller-manager/auto-created data")
}

// TestCreateOnce: neither a lagging cache nor a lost answer makes a second Secret.
func TestCreateOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account(), tokenSecret("a", withOld(t)))
	lost := false
	w.Client.PrependReactor("create", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if lost {
			return false, nil, nil
		}
		lost = true
		w.Live(t, action.(clienttesting.CreateActionImpl).Object)
		return true, nil, errors.New("the answer was lost")
	})
	if err := w.reissue(t.Context(), app); err == nil {
		t.Error("no error")
	}
	for range 3 { // the cache shows none of it, however late it is
		testutil.Must(t, w.reissue(t.Context(), app))
		w.Clock.Step(cacheSyncGrace)
	}
	secrets, err := w.Client.CoreV1().Secrets("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(secrets.Items) != 2 {
		t.Errorf("%d Secrets, want 2 (%v)", len(secrets.Items), err)
	}
}

// TestCreateForOneThatIsUsed: the first Secret that was made is there, and does not count any more.
func TestCreateForOneThatIsUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account(), tokenSecret("a", withOld(t)))
	testutil.Must(t, w.reissue(t.Context(), app))
	spoiled := tokenSecret("app-token-new01", replacing("a"), withOld(t), labelled(tokensecrets.LastUsedLabel, "2026-05-09"))
	spoiled, err := w.Client.CoreV1().Secrets("ns").Update(t.Context(), spoiled, metav1.UpdateOptions{FieldManager: meta.FieldManager})
	testutil.Must(t, err)
	w.Cache(t, spoiled)
	w.Client.ClearActions()
	testutil.Must(t, w.reissue(t.Context(), app))
	created := slices.DeleteFunc(w.Actions(t), func(action string) bool { return !strings.HasPrefix(action, "create") })
	want := []string{
		"create secrets app-token-new02 for app/uid-app replaces a/uid-a labels sa-controller-manager/auto-created data",
		"create secrets app-token-new03 for app/uid-app replaces app-token-new01/uid-app-token-new01 " +
			"labels sa-controller-manager/auto-created data",
	}
	testutil.Check(t, "requests", want, created)
}

// TestSurveyFindsWhatARollbackLeft: no Secret holds a retired key, and no event comes any more.
func TestSurveyFindsWhatARollbackLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, account(referencing("a")), tokenSecret("a", withNew(t)), tokenSecret("b", replacing("a"), withNew(t)))
		w.loop.Add(key{Work: surveying})
		testutil.Start(t, func(ctx context.Context) error { w.loop.Run(ctx); return nil })
		synctest.Wait()
		testutil.Check(t, "requests", []string{"get secrets b", "get serviceaccounts app", "delete secrets b [uid-b 20]"}, w.Actions(t))
	})
}

func TestSurvey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account(referencing("a")), tokenSecret("a", withOld(t)), tokenSecret("b", withNew(t)),
		tokenSecret("c", withOld(t), userMade),
		tokenSecret("d", signedBy(t, strangePEM(), testUID)), tokenSecret("e"))
	w.survey()
	testutil.Check(t, "by key", map[string]float64{"retired": 2, "active": 1, "unknown": 1}, w.Series(t, "sacm_token_secrets_by_key"))
	testutil.Check(t, "by holding", map[string]float64{"due": 1, "blocked user-made": 1}, w.Series(t, "sacm_token_reissue_secrets"))
}

// TestWhoLedShowsNothing: another process leads by now, whose surveys count.
func TestWhoLedShowsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, account(referencing("a")), tokenSecret("a", withOld(t), mode("never")))
		for range 2 { // terms
			stop := testutil.Start(t, w.Run)
			synctest.Wait()
			for series, want := range map[string]map[string]float64{
				"sacm_token_secrets_by_key":  {"retired": 1},
				"sacm_token_reissue_secrets": {"blocked never": 1},
			} {
				testutil.Check(t, series+" while it leads", want, w.Series(t, series))
			}
			stop()
			for _, series := range []string{"sacm_token_secrets_by_key", "sacm_token_reissue_secrets"} {
				testutil.Check(t, series+" afterwards", map[string]float64{}, w.Series(t, series))
			}
		}
	})
}
