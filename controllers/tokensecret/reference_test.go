// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

func TestSyncReference(t *testing.T) {
	t.Parallel()
	observed := referenceKey{Secret: named("token"), Account: "app", AccountUID: testUID, Observed: true}
	swept := referenceKey{Secret: named("token"), Account: "app", AccountUID: testUID}
	removes := "patch serviceaccounts app [uid-app 10] delete token"
	opaque := tokenSecret("token", func(secret *corev1.Secret) { secret.Type = corev1.SecretTypeOpaque })
	tests := map[string]struct {
		reason     string
		key        referenceKey
		account    *corev1.ServiceAccount
		cached     *corev1.Secret
		live       *corev1.Secret
		want       []string
		wantEvents []string
	}{
		"Observed": {
			reason:  "a delete that was seen needs no second check, if the entry is a token controller's",
			key:     referenceKey{Secret: named("app-token-bcdfg"), Account: "app", AccountUID: testUID, Observed: true},
			account: account(referencing("first"), listed(meta.FieldManager, "app-token-bcdfg"), referencing("last")),
			want:    []string{"patch serviceaccounts app [uid-app 10] delete app-token-bcdfg"}, wantEvents: []string{"Normal TokenReferenceRemoved"},
		},
		"ObservedAndAUsers": {
			reason: "as upstream does, if nothing bears its name", key: observed,
			account: account(referencing("first", "token", "last")),
			want:    []string{"get secrets token", removes}, wantEvents: []string{"Normal TokenReferenceRemoved"},
		},
		"ObservedAndReplaced": {
			reason: "what bears its name now is what the person means, and it may never come into this cache", key: observed,
			account: account(referencing("token")), live: opaque,
			want: []string{"get secrets token"},
		},
		"ObservedWithoutUID": {
			reason:  "a Secret that was never filled was nobody's, and the entry is for one to come",
			key:     referenceKey{Secret: named("token"), Account: "app"},
			account: account(referencing("token")),
		},
		"ObservedWithoutUIDAndOurs": {
			reason: "who wrote the entry is known", key: referenceKey{Secret: named("token"), Account: "app"},
			account: account(listed(meta.FieldManager, "token")),
			want:    []string{"get secrets token", removes}, wantEvents: []string{"Normal TokenReferenceRemoved"},
		},
		"NotReferenced": {reason: "nothing to remove", key: observed, account: account(referencing("other"))},
		"AccountRecreated": {
			reason: "the new account's entry is for a Secret to come", key: observed, account: account(recreated, referencing("token")),
		},
		"CreatedAgain": {
			reason: "the reference is right again", key: observed, account: account(referencing("token")), cached: tokenSecret("token"),
		},
		"Swept": {
			reason: "found missing at the start and confirmed", key: swept,
			account: account(listed(meta.FieldManager, "token")),
			want:    []string{"get secrets token", removes}, wantEvents: []string{"Normal TokenReferenceRemoved"},
		},
		"SweptButOfAnotherType": {
			reason: "it was never in this cache", key: swept,
			account: account(listed(meta.FieldManager, "token")), live: opaque,
			want: []string{"get secrets token"},
		},
		"SweptButNobodys": {
			reason: "when it was queued the entry was a token controller's; a user has written it since", key: swept,
			account: account(referencing("token")),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.account != nil {
				w.Cache(t, tc.account)
				w.Live(t, tc.account)
			}
			if tc.cached != nil {
				w.Cache(t, tc.cached)
			}
			if tc.live != nil {
				w.Live(t, tc.live)
			}
			if err := w.syncReference(t.Context(), tc.key); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			testutil.Check(t, tc.reason+": actions", tc.want, w.Actions(t))
			testutil.Check(t, tc.reason+": events", tc.wantEvents, w.Events())
		})
	}
}

func TestDereferenceConflictIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account())
	w.Cache(t, account(referencing("token")))
	w.Fail("patch", "serviceaccounts", controllertest.Conflict("serviceaccounts"))
	err := w.syncReference(t.Context(), referenceKey{Secret: named("token"), Account: "app", Observed: true})
	if !apierrors.IsConflict(err) {
		t.Errorf("no later event would queue this key: got %v, want the conflict", err)
	}
}

func TestReferenceThatIsNotCachedYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account())
	w.Auto = true
	w.Cache(t, account())
	w.syncsAccount(t, "a new account", createsOwn, referencesOwn)
	err := w.syncReference(t.Context(), referenceKey{Secret: named("app-token-bcdfg"), Account: "app", Observed: true})
	if !errors.Is(err, errAccountBehind) {
		t.Errorf("our own reference does not show yet and would dangle forever: got %v, want %v", err, errAccountBehind)
	}
}

// TestSweep checks which references to missing Secrets are looked at when the
// controller starts.
func TestSweep(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason  string
		account *corev1.ServiceAccount
		cached  string
		want    bool
	}{
		"WrittenByUs":     {reason: "managedFields prove it", account: account(listed("sa-controller-manager", "custom")), want: true},
		"WrittenAndThere": {reason: "not missing", account: account(listed("sa-controller-manager", "custom")), cached: "custom"},
		"UsersOwn":        {reason: "a user may list a Secret that is yet to come", account: account(referencing("custom"))},
		"NoName":          {reason: "no request can be made of it", account: account(listed("sa-controller-manager", "no/name"))},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Cache(t, tc.account)
			if tc.cached != "" {
				w.Cache(t, tokenSecret(tc.cached))
			}
			got := len(w.dangling(tc.account)) > 0
			if got != tc.want {
				t.Errorf("%s: looked at: %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// TestReferenceThatShowsLate: the account shows it after the Secret was seen to go, so the
// deletion's own check has found nothing to remove.
func TestReferenceThatShowsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, account(listed(meta.FieldManager, "app-token-frstz")))
		w.Cache(t, account(listed(meta.FieldManager, "app-token-frstz")))
		w.syncsAccount(t, "the reference shows")
		testutil.Start(t, func(ctx context.Context) error { w.referenceLoop.Run(ctx); return nil })
		synctest.Wait()
		testutil.Check(t, "requests while the watch of Secrets may be late", []string(nil), w.Actions(t))
		w.Clock.Step(cacheSyncGrace)
		synctest.Wait()
		testutil.Check(t, "requests after that",
			[]string{"get secrets app-token-frstz", "patch serviceaccounts app [uid-app 10] delete app-token-frstz"}, w.Actions(t))
	})
}
