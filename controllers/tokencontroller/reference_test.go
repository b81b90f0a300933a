// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

func TestSyncReferences(t *testing.T) {
	t.Parallel()
	const ours, kept = "app-token-bcdfg", "patch serviceaccounts app [uid-app 10] references"
	opaque := func(name string) *corev1.Secret {
		return tokenSecret(name, func(secret *corev1.Secret) { secret.Type = corev1.SecretTypeOpaque })
	}
	written := listed(meta.FieldManager, ours)
	deleted := func(names ...string) (all []*corev1.Secret) {
		for _, name := range names {
			all = append(all, tokenSecret(name, boundTo(testUID)))
		}
		return all
	}
	many := make([]string, fewReferences+1)
	for i := range many {
		many[i] = fmt.Sprintf("app-token-many%d", i)
	}
	type secrets = []*corev1.Secret
	for name, tc := range map[string]struct {
		reason       string
		deleted      secrets // as the watch has shown
		account      *corev1.ServiceAccount
		cached, live secrets
		refusal      error
		want         []string
	}{
		"Observed": {
			reason:  "a delete that was seen needs no second check, if the entry is a token controller's",
			deleted: deleted(ours), account: account(referencing("first"), written, referencing("last")), want: []string{kept + " first last"},
		},
		"ObservedAndAUsers": {
			reason: "as upstream does, if nothing bears its name", deleted: deleted("token"),
			account: account(referencing("first", "token", "last")), want: []string{"get secrets token", kept + " first last"},
		},
		"ObservedAndReplaced": {
			reason: "what bears its name now is what the person means, and it may never come into this cache", deleted: deleted("token"),
			account: account(referencing("token")), live: secrets{opaque("token")}, want: []string{"get secrets token"},
		},
		"ObservedWithoutUID": {
			reason: "a Secret that was never filled was nobody's, and the entry is for one to come", deleted: secrets{tokenSecret("token")},
			account: account(referencing("token")),
		},
		"ObservedWithoutUIDAndOurs": {
			reason: "who wrote the entry is known", deleted: secrets{tokenSecret(ours)}, account: account(written),
			want: []string{"get secrets " + ours, kept},
		},
		"SeveralAtOnce": {
			reason: "one patch for all", deleted: deleted(ours, "token"), account: account(written, referencing("first", "token", "token")),
			want: []string{"get secrets token", kept + " first"},
		},
		"ManyObservedAndAUsers": {
			reason: "one list for all, which has what was created again", deleted: deleted(many...), account: account(referencing(many...)),
			live: secrets{tokenSecret(many[3])}, want: []string{"list secrets", kept + " " + many[3]},
		},
		"ManyObservedAndReplaced": {
			reason: "a Secret of any type is what the user means", deleted: deleted(many...), account: account(referencing(many...)),
			live: secrets{opaque(many[3])}, want: []string{"list secrets", kept + " " + many[3]},
		},
		"ManyWritten": {
			reason: "anybody can write managedFields", account: account(listed(meta.FieldManager, many...)), want: []string{"list secrets", kept},
		},
		"Conflict": {
			reason: "no later event would queue this key", deleted: deleted(ours), account: account(written), want: []string{kept},
			refusal: controllertest.Conflict("serviceaccounts"),
		},
		"NotReferenced": {reason: "nothing to remove", deleted: deleted("token"), account: account(referencing("other"))},
		"AccountRecreated": {
			reason: "the new account's entry is for a Secret to come", deleted: deleted("token"), account: account(recreated, referencing("token")),
		},
		"CreatedAgain": {
			reason: "the reference is right again", deleted: deleted("token"), account: account(referencing("token")),
			cached: secrets{tokenSecret("token")},
		},
		"CreatedAgainForAnother": {
			reason: "its deletion would not queue this key", deleted: deleted(ours), account: account(written), cached: secrets{anothersToken(ours)},
			want: []string{kept},
		},
		"CreatedAgainForAnotherAndAUsers": {
			reason: "the person may mean what bears the name now", deleted: deleted("token"), account: account(referencing("token")),
			cached: secrets{anothersToken("token")},
		},
		"SweptAndAnothers": {reason: "likewise", account: account(written), cached: secrets{anothersToken(ours)}, want: []string{kept}},
		"Swept":            {reason: "found missing and confirmed", account: account(written), want: []string{"get secrets " + ours, kept}},
		"SweptButOfAnotherType": {
			reason: "it was never in this cache", account: account(written), live: secrets{opaque(ours)}, want: []string{"get secrets " + ours},
		},
		"SweptButNobodys": {reason: "a user may list a Secret that is yet to come", account: account(referencing(ours))},
		"NoName":          {reason: "no request can be made of it", account: account(listed(meta.FieldManager, "no/name"))},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.account)
			w.Cache(t, tc.account)
			for _, secret := range tc.cached {
				w.Cache(t, secret)
			}
			for _, secret := range tc.live {
				w.Live(t, secret)
			}
			for _, secret := range tc.deleted {
				w.observed.add(tokensecrets.Observe(secret))
			}
			w.FailNext("patch", "serviceaccounts", tc.refusal)
			err := w.syncReferences(t.Context(), named("app"))
			testutil.Require(t, errors.Is(err, tc.refusal), "%s: %v", tc.reason, err)
			testutil.Check(t, tc.reason+": actions", tc.want, w.Actions(t))
			var events []string
			if len(tc.want) > 0 && tc.refusal == nil && strings.HasPrefix(tc.want[len(tc.want)-1], "patch") {
				events = []string{"Normal TokenReferenceRemoved"}
			}
			testutil.Check(t, tc.reason+": events", events, w.Events())
			left := len(w.observed.all) > 0
			testutil.Expect(t, left == (tc.refusal != nil), "%s: deletions are kept: %t, want them kept for a retry only", tc.reason, left)
			swept := len(tc.deleted) == 0 && len(tc.want) > 0
			testutil.Expect(t, !swept || w.mayDangle(tc.account), "%s: no sync of the account queues it", tc.reason)
		})
	}
}

// TestReadsAreNotRepeated: what was read is kept for this version of the account, and one namespace is listed once in ten
// seconds, whatever its users write.
func TestReadsAreNotRepeated(t *testing.T) {
	t.Parallel()
	names := make([]string, 3000)
	for i := range names {
		names[i] = fmt.Sprint("made-up-", i)
	}
	boom := errors.New("boom")
	app := account(listed(meta.FieldManager, names[:fewReferences]...))
	w := newWorld(t, app)
	w.Cache(t, app)
	w.FailNext("get", "secrets", nil, nil, boom)
	syncs := func(when string, fails error, want ...string) {
		t.Helper()
		err := w.syncReferences(t.Context(), named("app"))
		testutil.Expect(t, errors.Is(err, fails), "%s: error %v, want %v", when, err, fails)
		testutil.Check(t, when, want, w.Actions(t))
	}
	var reads []string
	for _, name := range names[:fewReferences] {
		reads = append(reads, "get secrets "+name)
	}
	const removes = "patch serviceaccounts app [uid-app 10] references"
	syncs("the third read fails", boom, reads[:3]...)
	w.FailNext("patch", "serviceaccounts", boom)
	syncs("it goes on there", boom, append(reads[2:], removes)...)
	syncs("the patch has failed", nil, removes)

	forged := account(listed(meta.FieldManager, names...), func(a *corev1.ServiceAccount) { a.ResourceVersion = "11" })
	w.Cache(t, forged)
	w.Live(t, forged.DeepCopy()) // the fake API server takes managedFields away
	w.FailNext("list", "secrets", boom)
	syncs("3000 made-up entries", boom, "list secrets")
	syncs("at once", nil)
	w.Clock.Step(listPeriod)
	w.FailNext("patch", "serviceaccounts", controllertest.Conflict("serviceaccounts"))
	const removesAll = "patch serviceaccounts app [uid-app 11] references"
	err := w.syncReferences(t.Context(), named("app"))
	testutil.Expect(t, apierrors.IsConflict(err), "a conflict: error %v", err)
	testutil.Check(t, "ten seconds later", []string{"list secrets", removesAll}, w.Actions(t))
	syncs("the version of the account is still the same", nil, removesAll)
}

func TestReferenceThatIsNotCachedYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account())
	w.Auto = true
	w.Cache(t, account())
	w.syncsAccount(t, "a new account", createsOwn, referencesOwn)
	w.observed.add(tokensecrets.Observe(tokenSecret("app-token-bcdfg", boundTo(testUID))))
	for range 2 {
		if err := w.syncReferences(t.Context(), named("app")); !errors.Is(err, errAccountBehind) {
			t.Errorf("our own reference does not show yet and would dangle forever: got %v, want %v", err, errAccountBehind)
		}
	}
}

// anothersToken is a token Secret of the account other.
func anothersToken(name string) *corev1.Secret {
	return tokenSecret(name, func(secret *corev1.Secret) { secret.Annotations[corev1.ServiceAccountNameKey] = "other" })
}

// TestEntriesStay: what else an entry of a list says stays, and so does the order.
func TestEntriesStay(t *testing.T) {
	t.Parallel()
	type list = []corev1.ObjectReference
	gone, mine := corev1.ObjectReference{Name: "gone"}, corev1.ObjectReference{Name: "mine", Kind: "Secret", UID: "u", FieldPath: "data"}
	app := account(func(a *corev1.ServiceAccount) { a.Secrets = list{gone, mine, gone} })
	for name, tc := range map[string]struct {
		do   func(*world) error
		want list
	}{
		"Reference":      {func(w *world) error { return w.reference(t.Context(), app, "new") }, list{{Name: "new"}, gone, mine, gone}},
		"ReferenceFirst": {func(w *world) error { return ReferenceFirst(t.Context(), w.Client, app, "gone") }, list{gone, mine}},
		"Dereference":    {func(w *world) error { return w.dereference(t.Context(), app, []string{"gone"}) }, list{mine}},
	} {
		w := newWorld(t, app)
		testutil.Must(t, tc.do(w))
		got := testutil.Get(w.Client.CoreV1().ServiceAccounts(testNamespace).Get(t.Context(), "app", metav1.GetOptions{}))(t)
		testutil.Check(t, name, tc.want, got.Secrets)
	}
}
