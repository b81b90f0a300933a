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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

const (
	createsOwn    = "create secrets app-token-bcdfg for app/uid-app labels sa-controller-manager/auto-created data ca.crt namespace token"
	referencesOwn = "patch serviceaccounts app [uid-app 10] references app-token-bcdfg"
)

func TestSyncAccountAuto(t *testing.T) {
	t.Parallel()
	own := func(name string, change ...func(*corev1.Secret)) *corev1.Secret {
		return tokenSecret(name, append([]func(*corev1.Secret){filled(t), autoCreated}, change...)...)
	}
	type list = []*corev1.Secret
	boom := errors.New("boom")
	fresh := func(change ...func(*corev1.Secret)) *corev1.Secret {
		return own("app-token-new", append(change, replacing("app-token-old"))...)
	}
	const references = "patch serviceaccounts app [uid-app 10] references app-token-"
	for name, tc := range map[string]struct {
		reason  string
		change  func(*corev1.ServiceAccount)
		secrets list
		answer  error // to a creation
		want    []string
		err     error
	}{
		"New":       {reason: "two requests: a complete Secret and the reference", want: []string{createsOwn, referencesOwn}},
		"Satisfied": {reason: "one is enough", change: referencing("app-token-frstz"), secrets: list{own("app-token-frstz")}},
		"ReferenceToMissingSecret": {
			reason: "a reference alone is no token, and no token controller chooses such names",
			change: referencing("gone", "app-token-long"),
			want:   []string{createsOwn, referencesOwn + " gone app-token-long"},
		},
		"CrashedBeforeReferencing": {
			reason: "what was created is adopted: no duplicate, no orphan", secrets: list{own("app-token-frstz")},
			want: []string{references + "frstz"},
		},
		"CrashedTwice": {
			reason:  "the oldest is adopted; the other stays, for a client may use it",
			secrets: list{own("app-token-young", createdAt(9)), own("app-token-old", createdAt(5))}, want: []string{references + "old"},
		},
		"SecretsEdited": {
			reason: "kubectl edit, Terraform and Argo CD write lists without what they do not know; Pods mount the Secret all the same",
			change: referencing("mine"), secrets: list{tokenSecret("mine", filled(t)), own("app-token-first")},
		},
		"SuccessorOfOneThatIsGone": {reason: "it is as good as any other", secrets: list{fresh()}, want: []string{references + "new"}},
		"SuccessorOfOneThatIsInvalid": {
			change: referencing("app-token-old"), secrets: list{fresh(), own("app-token-old", invalidSince)},
			want: []string{references + "new app-token-old"},
		},
		"CrashedAndUseless": {
			reason:  "none of them gives the account a token",
			secrets: list{own("one", terminating), own("two", invalidSince), own("three", boundTo(otherUID))},
			want:    []string{createsOwn, referencesOwn},
		},
		"CrashedAmidAReissue": {
			reason:  "the one that was re-issued, however old its successor is",
			secrets: list{fresh(createdAt(5)), own("app-token-old", createdAt(9))}, want: []string{references + "old"},
		},
		"UnmarkedIsNotOurs": {
			reason: "only what bears our marker is adopted", secrets: list{tokenSecret("app-token-users", filled(t))},
			want: []string{createsOwn, referencesOwn},
		},
		"Terminating": {reason: "nothing for who is going", change: controllertest.TerminatingAccount},
		"NamespaceTerminating": {
			reason: "nothing is owed there", answer: controllertest.NamespaceTerminating("secrets"), want: []string{createsOwn},
		},
		"NamespaceGone": {reason: "nothing is owed there", answer: controllertest.NotFound("namespaces"), want: []string{createsOwn}},
		"Refused":       {reason: "tried again", answer: boom, want: []string{createsOwn}, err: boom},
	} {
		t.Run(name, func(t *testing.T) {
			app := account()
			if tc.change != nil {
				tc.change(app)
			}
			w := newWorld(t, app)
			w.Auto = true
			w.Cache(t, app)
			for _, secret := range tc.secrets {
				w.Cache(t, secret)
				w.Live(t, secret)
			}
			w.FailNext("create", "secrets", tc.answer)
			err := w.syncAccount(t.Context(), named("app"))
			testutil.Expect(t, errors.Is(err, tc.err), "%s: got error %v, want %v", tc.reason, err, tc.err)
			testutil.Check(t, tc.reason, tc.want, w.Actions(t))
		})
	}
}

func TestAutoExcluded(t *testing.T) {
	t.Parallel()
	for namespace, want := range map[string][]string{testNamespace: nil, "other": {createsOwn, referencesOwn}} {
		w := newWorld(t, account(), tokenSecret("users"))
		w.Auto, w.AutoExcluded = true, sets.New(namespace)
		w.Cache(t, account(), tokenSecret("users"))
		w.syncsAccount(t, "with the excluded namespace "+namespace, want...)
		w.syncsSecret(t, "users", "what users create is filled everywhere",
			"patch secrets users [uid-users 20] for app/uid-app ca.crt namespace token")
	}
}

// TestAutoAfterTwoLeaders goes through a takeover whose watches are late: one Secret is
// referenced. The other one, which this process has just created, is deleted unless it may be in use.
func TestAutoAfterTwoLeaders(t *testing.T) {
	t.Parallel()
	const (
		looksUp = "get secrets app-token-frstz"
		deletes = "delete secrets app-token-bcdfg [uid-app-token-bcdfg 20]"
	)
	theirs := tokenSecret("app-token-frstz", filled(t), autoCreated)
	live := account(listed(meta.FieldManager, "app-token-frstz"), func(a *corev1.ServiceAccount) { a.ResourceVersion = "11" })
	for name, tc := range map[string]struct {
		reason  string
		refusal error // of the first request to reference ours
		want    []string
	}{
		"Refused":    {"nothing has used it", controllertest.Conflict("serviceaccounts"), []string{deletes}},
		"Unanswered": {"it may have been referenced, and a user may have taken the reference away", errors.New("cut"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, live, theirs)
			w.Auto = true
			w.FailNext("patch", "serviceaccounts", tc.refusal)
			w.Client.PrependReactor("create", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
				secret := action.(clienttesting.CreateAction).GetObject().(*corev1.Secret)
				secret.UID, secret.ResourceVersion = types.UID("uid-"+secret.Name), "20"
				return false, nil, nil // the reactor of the fake creates it
			})
			w.Cache(t, account())
			_ = w.syncAccount(t.Context(), named("app")) // the next steps show what it expects
			testutil.Check(t, "neither watch shows what the former leader did", []string{createsOwn, referencesOwn}, w.Actions(t))
			w.Cache(t, live)
			w.syncsAccount(t, "the account shows it, and its Secret is late", looksUp)
			w.Cache(t, tokenSecret("app-token-bcdfg", filled(t), autoCreated))
			w.syncsAccount(t, "ours shows", looksUp)
			w.Cache(t, theirs)
			w.syncsAccount(t, "theirs shows: "+tc.reason, tc.want...)
			w.syncsAccount(t, "once")
		})
	}
}

// TestAnUnusedSecretThatIsReferencedStays: a user has led clients to it.
func TestAnUnusedSecretThatIsReferencedStays(t *testing.T) {
	t.Parallel()
	ours, theirs := tokenSecret("app-token-bcdfg", filled(t), autoCreated), tokenSecret("app-token-frstz", filled(t), autoCreated)
	app := account(referencing(theirs.Name, ours.Name))
	w := newWorld(t, app, ours, theirs)
	w.Auto = true
	w.Cache(t, app, ours, theirs)
	w.created.set(named("app"), testUID, createExpectation{secret: ours.Name, created: true, unused: tokensecrets.Observe(ours)})
	w.syncsAccount(t, "both are referenced")
}

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
			deleted: deleted(ours), account: account(referencing("first"), written, referencing("last")),
			want: []string{kept + " first last"},
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
			reason: "anybody can write managedFields", account: account(listed(meta.FieldManager, many...)),
			want: []string{"list secrets", kept},
		},
		"Conflict": {
			reason: "no later event would queue this key", deleted: deleted(ours), account: account(written), want: []string{kept},
			refusal: controllertest.Conflict("serviceaccounts"),
		},
		"NotReferenced": {reason: "nothing to remove", deleted: deleted("token"), account: account(referencing("other"))},
		"AccountRecreated": {
			reason: "the new account's entry is for a Secret to come", deleted: deleted("token"),
			account: account(recreated, referencing("token")),
		},
		"CreatedAgain": {
			reason: "the reference is right again", deleted: deleted("token"), account: account(referencing("token")),
			cached: secrets{tokenSecret("token")},
		},
		"CreatedAgainForAnother": {
			reason: "its deletion would not queue this key", deleted: deleted(ours), account: account(written),
			cached: secrets{anothersToken(ours)},
			want:   []string{kept},
		},
		"CreatedAgainForAnotherAndAUsers": {
			reason: "the person may mean what bears the name now", deleted: deleted("token"), account: account(referencing("token")),
			cached: secrets{anothersToken("token")},
		},
		"SweptAndAnothers": {reason: "likewise", account: account(written), cached: secrets{anothersToken(ours)}, want: []string{kept}},
		"Swept":            {reason: "found missing and confirmed", account: account(written), want: []string{"get secrets " + ours, kept}},
		"SweptButOfAnotherType": {
			reason: "it was never in this cache", account: account(written), live: secrets{opaque(ours)},
			want: []string{"get secrets " + ours},
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
