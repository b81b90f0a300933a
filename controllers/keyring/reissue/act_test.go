// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/controllertest"
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
		getB       = "get secrets b"
		createsNew = "create secrets app-token-new01 for app/uid-app replaces a/uid-a labels sa-controller-manager/auto-created data"
	)
	type objects = []runtime.Object
	a := func(changes ...func(*corev1.Secret)) *corev1.Secret { return tokenSecret("a", changes...) }
	b := func(changes ...func(*corev1.Secret)) *corev1.Secret { // replaces it
		return tokenSecret("b", append(changes, fresh, replacing("a"))...)
	}
	cases := map[string]struct {
		reason  string
		objects objects
		live    objects  // newer than what is cached
		gone    []string // Secrets that only the cache has
		world   func(*world)
		want    []string
		told    []string
		counted map[string]float64
	}{
		"Create": {objects: objects{account(referencing("a")), a(old)}, want: []string{getA, getAccount, createsNew}},
		"CreateForUsersAlone": {
			reason:  "no later step says that the Secret has a successor",
			objects: objects{account(), a(old, userMade, mode("side-by-side"))},
			want:    []string{getA, getAccount, strings.Replace(createsNew, "sa-controller-manager/auto-created ", " ", 1)},
			told:    []string{"Normal TokenSecretReplaced"}, counted: map[string]float64{"done": 1},
		},
		"Reference": {
			objects: objects{account(referencing("a")), a(old), b()},
			want:    []string{getAccount, "patch serviceaccounts app [uid-app 10] references b a"},
			told:    []string{"Normal TokenSecretReplaced"}, counted: map[string]float64{"done": 1},
		},
		"Discard": {
			objects: objects{account(), b()}, want: []string{getB, getAccount, "delete secrets b [uid-b 20]"},
			told: []string{"Normal TokenSecretDiscarded"},
		},
		"UnknownMode": {objects: objects{account(), a(old, mode("sometimes"))}, told: []string{"Warning UnknownReissueMode"}},
		"FilledElsewhere": {
			objects: objects{account(referencing("b", "a")), a(old),
				tokenSecret("b", replacing("a"), old, filledBy("kube-controller-manager"))},
			told: []string{"Warning SecondTokenController"},
		},

		// Each of these forbids all writes.
		"NotTheNewestRing": {
			reason: "another leader would undo it", objects: objects{account(), a(old), b()},
			world: func(w *world) { w.held = errors.New("a newer one is published") },
		},
		"Off": {objects: objects{account(), a(old), b()}, world: func(w *world) { w.Off = true }},
		"NotConfirmed": {
			reason: "kube-apiserver does not accept the key: the new tokens would be dead", objects: objects{account(), a(old), b()},
			world: func(w *world) { w.unconfirmed = true },
		},

		"GoneMeanwhile": {objects: objects{account(), a(old)}, gone: []string{"a"}, want: []string{getA}},
		"MadeAnewMeanwhile": {
			objects: objects{account(), a(old)}, live: objects{a(old, func(s *corev1.Secret) { s.UID = otherUID })}, want: []string{getA},
		},
		"MarkedMeanwhile": {
			reason: "the label counts, however late it comes", objects: objects{account(), a(old)},
			live: objects{a(old, labelled(tokensecrets.InvalidSinceLabel, "2026-05-10"))}, want: []string{getA, getAccount},
		},
		"AccountMadeAnewMeanwhile": {
			reason: "or the new account would get the token of the old one", objects: objects{account(), a(old)},
			live: objects{account(recreated)},
			want: []string{getA, getAccount},
		},
		"AccountMadeAnewBeforeTheReference": {
			objects: objects{account(), a(old), b()}, live: objects{account(recreated)}, want: []string{getAccount},
		},
		"NotSignedByItsKey": {
			reason: "the writer of the key ID did not have the key", objects: objects{account(), a(old, forged(t, "", ""))},
			want: []string{getA, getAccount}, told: []string{"Warning TokenNotReissued"}, counted: map[string]float64{"refused": 1},
		},
		"UsedBeforeItWasDiscarded": {
			objects: objects{account(), b()}, live: objects{b(labelled(tokensecrets.LastUsedLabel, "2026-05-10"))},
			want: []string{getB, getAccount},
		},
		"ReferencedBeforeItWasDiscarded": {
			objects: objects{account(), b()}, live: objects{account(referencing("b"))}, want: []string{getB, getAccount},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			w.Live(t, tc.live...)
			for _, name := range tc.gone {
				w.Delete(t, tokenSecret(name))
			}
			if tc.world != nil {
				tc.world(w)
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
	testutil.Expect(t, w.reissue(t.Context(), app) != nil, "no error")
	for range 3 { // the cache shows none of it, however late it is
		testutil.Must(t, w.reissue(t.Context(), app))
		w.Clock.Step(cacheSyncGrace)
	}
	secrets, err := w.Client.CoreV1().Secrets("ns").List(t.Context(), metav1.ListOptions{})
	testutil.Expect(t, err == nil && len(secrets.Items) == 2, "%d Secrets, want 2 (%v)", len(secrets.Items), err)
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

// TestWaitsForItsSlot: so many are made in a second and no more.
func TestWaitsForItsSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account(), tokenSecret("a", withOld(t)))
	w.limiter.ReserveN(w.Clock.Now(), perSecond)
	w.reissues(t, "others come first")
	w.Clock.Step(time.Second)
	w.reissues(t, "it is next", "get secrets a", "get serviceaccounts app",
		"create secrets app-token-new01 for app/uid-app replaces a/uid-a labels sa-controller-manager/auto-created data")
}

// TestSurveyFindsWhatARollbackLeft: no Secret holds a retired key, and no event comes any more.
func TestSurveyFindsWhatARollbackLeft(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		w := newWorld(t, account(referencing("a")), tokenSecret("a", withNew(t)), tokenSecret("b", replacing("a"), withNew(t)))
		w.Start(t, w.Run)
		synctest.Wait()
		testutil.Check(t, "requests", []string{"get secrets b", "get serviceaccounts app", "delete secrets b [uid-b 20]"}, w.Actions(t))
		w.Live(t, tokenSecret("c", withOld(t)))
		synctest.Wait()
		testutil.Check(t, "requests once a Secret with the retired key is there", []string{"get secrets c", "get serviceaccounts app",
			"create secrets app-token-new01 for app/uid-app replaces c/uid-c labels sa-controller-manager/auto-created data"}, w.Actions(t))
	})
}

func TestSurvey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account(referencing("a")), tokenSecret("a", withOld(t)), tokenSecret("b", withNew(t)),
		tokenSecret("c", withOld(t), userMade),
		tokenSecret("d", withToken(t, strangePEM(), testUID)), tokenSecret("e"),
		tokenSecret("f", controllertest.WithData(corev1.ServiceAccountTokenKey, "e30.e30.c2ln")))
	w.survey()
	testutil.Check(t, "by key", map[string]float64{"retired": 2, "active": 1, "unknown": 1, "none": 1},
		w.Series(t, "sacm_token_secrets_by_key"))
	testutil.Check(t, "by holding", map[string]float64{"due": 1, "blocked user-made": 1}, w.Series(t, "sacm_token_reissue_secrets"))
}

// TestSurveyForgetsWhatIsGone: who makes Secrets that are refused, or re-issued, and deletes them
// again takes no memory for as long as this process leads.
func TestSurveyForgetsWhatIsGone(t *testing.T) {
	t.Parallel()
	old := withOld(t)
	stays, goes := tokenSecret("stays", old), tokenSecret("goes", old)
	forgedStays, forgedGoes := tokenSecret("forged-stays", old, forged(t, "", "")), tokenSecret("forged-goes", old, forged(t, "", ""))
	w := newWorld(t, account(), stays, goes, forgedStays, forgedGoes)
	remembered := func() [2][]types.UID {
		return [2][]types.UID{slices.Sorted(maps.Keys(w.created)), slices.Sorted(maps.Keys(w.refused))}
	}
	testutil.Must(t, w.reissue(t.Context(), app))
	w.survey()
	want := [2][]types.UID{{"uid-goes", "uid-stays"}, {"uid-forged-goes", "uid-forged-stays"}}
	testutil.Check(t, "remembered while all of them are there", want, remembered())
	w.Uncache(t, goes, forgedGoes)
	w.survey()
	testutil.Check(t, "remembered once some are gone", [2][]types.UID{{"uid-stays"}, {"uid-forged-stays"}}, remembered())
}

// TestSuccessorKeepsWhatAPersonHasSet: what decides on the life of a Secret decides on that of its
// successor, too.
func TestSuccessorKeepsWhatAPersonHasSet(t *testing.T) {
	t.Parallel()
	owner := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "App", Name: "shop", UID: "u", Controller: new(true)}
	set := func(secret *corev1.Secret) {
		owned := owner
		owned.BlockOwnerDeletion = new(true)
		secret.OwnerReferences = []metav1.OwnerReference{owned}
		metav1.SetMetaDataLabel(&secret.ObjectMeta, "app", "shop")
		metav1.SetMetaDataLabel(&secret.ObjectMeta, tokensecrets.LastUsedLabel, "2026-01-01")
		secret.Annotations["example.com/own"] = "stays behind"
		secret.Annotations[tokensecrets.KeepAnnotation] = "true"
	}
	for name, tc := range map[string]struct {
		reason string
		old    *corev1.Secret
		lists  []string
		want   map[string]string // labels
	}{
		"Ours": {
			"the cleaner knows it by our label", tokenSecret("old", set), []string{"old"},
			map[string]string{"app": "shop", tokensecrets.AutoCreatedLabel: "true"},
		},
		"UsersInTheList": {
			"the cleaner judges what the list names", tokenSecret("old", userMade, set, mode(modeSideBySide)), []string{"old"},
			map[string]string{"app": "shop", tokensecrets.AutoCreatedLabel: "true"},
		},
		"UsersAlone": {
			"the cleaner leaves it alone", tokenSecret("old", userMade, set, mode(modeSideBySide)), nil,
			map[string]string{"app": "shop"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			named := account(referencing(tc.lists...))
			got := successorOf(&tokensecrets.Live{Secret: tc.old, Account: named}, "new")
			testutil.Check(t, tc.reason+": labels", tc.want, got.Labels)
			testutil.Check(t, tc.reason+": owners", []metav1.OwnerReference{owner}, got.OwnerReferences)
			testutil.Check(t, tc.reason+": annotations", map[string]string{
				corev1.ServiceAccountNameKey: "app", corev1.ServiceAccountUIDKey: testUID,
				tokensecrets.ReplacesAnnotation: "old/" + string(tc.old.UID), tokensecrets.KeepAnnotation: "true",
			}, got.Annotations)
		})
	}
}
