// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"cmp"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

func TestSyncSecret(t *testing.T) {
	t.Parallel()
	const fills = "patch secrets token [uid-token 20] for app/uid-app"
	const everything = fills + " ca.crt namespace token"
	boom, conflict := errors.New("boom"), controllertest.Conflict("secrets")
	for name, tc := range map[string]struct {
		reason       string
		change       func(*corev1.Secret)   // of an empty Secret token
		filled       bool                   // before that
		account      *corev1.ServiceAccount // in the cache, account() if nil
		uncached     bool                   // there is none in the cache
		live         []runtime.Object
		fails        string // requests with this verb
		answer       error  // to them
		want, events []string
		note         string // in them
		err          error
	}{
		"Empty": {reason: "what a user creates is filled with one request and none before it", want: []string{everything}},
		"Full":  {reason: "nothing is written where nothing is lacking", filled: true},
		"OnlyTokenMissing": {
			reason: "emptying data.token is how people ask for a new token", filled: true, change: withData(corev1.ServiceAccountTokenKey, ""),
			want: []string{fills + " token"},
		},
		"StaleCA": {
			reason: "ca.crt follows the root CA, the token stays", filled: true, change: withData(corev1.ServiceAccountRootCAKey, otherCA),
			want: []string{fills + " ca.crt"},
		},
		"OnlyUIDMissing": {
			reason: "both annotations belong to a complete token Secret", filled: true, change: boundTo(""), want: []string{fills},
		},
		"WrongNamespaceKey": {
			reason: "what a user wrote is reported, not overwritten", filled: true,
			change: withData(corev1.ServiceAccountNamespaceKey, "elsewhere"), events: []string{"Warning TokenSecretMismatch"},
		},
		"TokenOfEarlierAccount": {
			reason: "the token's UID is compared with the live account, not with the annotation", filled: true,
			change: withToken(t, testkeys.P256(), otherUID), events: []string{"Warning TokenSecretMismatch"},
		},
		"GarbageToken": {
			reason: "no panic, no overwriting; the rest is filled", change: withData(corev1.ServiceAccountTokenKey, "\x00not.a.token"),
			want: []string{fills + " ca.crt namespace"}, events: []string{"Warning TokenSecretMismatch"},
		},
		"UnknownKey": {
			reason: "nobody but us may know that the key is gone", filled: true, change: withToken(t, testkeys.P256Other(), testUID),
			events: []string{"Warning UnknownSigningKey"},
		},
		"Immutable": {reason: "an update would always fail", change: immutable, events: []string{"Warning ImmutableTokenSecret"}},
		"MarkedInvalid": {
			reason: "a token that the cleaner has switched off is not issued again", change: invalidSince,
			want: []string{fills + " ca.crt namespace"}, events: []string{"Warning TokenMarkedInvalid"},
		},
		"ImpossibleAccountName": {
			reason: "no account can have this name, so nothing can be known about it",
			change: controllertest.Annotated(corev1.ServiceAccountNameKey, "a\nb"), events: []string{"Warning InvalidServiceAccountName"},
		},
		"AccountGone": {
			uncached: true, reason: "the apiserver confirms it before the delete, which carries both preconditions", filled: true,
			want: []string{asksAccount, deletesIt}, events: []string{"Normal OrphanedTokenSecretDeleted"},
		},
		"AccountRecreated": {
			reason: "same name, other UID: not the account it was issued for", filled: true, account: account(recreated, madeAt(1)),
			live: []runtime.Object{account(recreated, madeAt(1))}, want: []string{asksAccount, deletesIt},
			events: []string{"Normal OrphanedTokenSecretDeleted"}, note: `it has UID "uid-app", and ServiceAccount "app" has another one`,
		},
		"EmptyAndAccountNotCachedYet": {
			uncached: true, reason: "it is filled for the account that is there, and nobody is warned of what nobody has looked at",
			live: []runtime.Object{account()}, want: []string{asksAccount, everything},
		},
		"AppliedBeforeItsAccount": {
			uncached: true, reason: "a Secret that never belonged to anybody may wait", want: []string{asksAccount},
			events: []string{"Warning ServiceAccountMissing"},
		},
		"OrphanWithTokenOnly": {
			uncached: true, reason: "a token means that there was an account: no grace", change: withToken(t, testkeys.P256(), testUID),
			want: []string{asksAccount, deletesIt}, events: []string{"Normal OrphanedTokenSecretDeleted"},
		},

		"FillConflict": {
			reason: "the watch brings the newer version", fails: "patch", answer: conflict, want: []string{everything}, err: errStale,
		},
		"FillError": {reason: "anything else is tried again", fails: "patch", answer: boom, want: []string{everything}, err: boom},
		"DeleteConflict": {
			uncached: true, reason: "it has changed: decided again", filled: true, fails: "delete", answer: conflict,
			want: []string{asksAccount, deletesIt}, err: errStale,
		},
		"DeleteError": {uncached: true, filled: true, fails: "delete", answer: boom, want: []string{asksAccount, deletesIt}, err: boom},
		"LookupError": {
			uncached: true, reason: "no answer is not a no", filled: true, fails: "get", answer: boom, want: []string{asksAccount}, err: boom,
		},
	} {
		t.Run(name, func(t *testing.T) {
			secret := tokenSecret("token")
			if tc.filled {
				filled(t)(secret)
			}
			if tc.change != nil {
				tc.change(secret)
			}
			w := newWorld(t, append(tc.live, secret)...)
			w.Cache(t, secret)
			if !tc.uncached {
				w.Cache(t, cmp.Or(tc.account, account()))
			}
			if !w.secretDue(w.secrets.Get(named("token"))) && len(tc.want)+len(tc.events) > 0 {
				t.Errorf("%s: a new leader does not queue it", tc.reason)
			}
			if tc.fails != "" {
				w.Fail(tc.fails, "*", tc.answer)
			}
			err := errors.Join(w.syncSecret(t.Context(), named("token")), w.replaceCA(t.Context(), named("token")))
			if !errors.Is(err, tc.err) {
				t.Errorf("%s: got error %v, want %v", tc.reason, err, tc.err)
			}
			testutil.Check(t, tc.reason, tc.want, w.Actions(t))
			testutil.CheckContains(t, tc.reason+": events", tc.note, strings.Join(w.Recorded.Lines(), "\n"))
			testutil.Check(t, tc.reason+": events", tc.events, w.Events())
		})
	}
}

func TestOneWriteFromOneVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tokenSecret("token"))
	w.Cache(t, tokenSecret("token"), account())
	fills := func(version string) string {
		return "patch secrets token [uid-token " + version + "] for app/uid-app ca.crt namespace token"
	}
	w.syncsSecret(t, "token", "first sync", fills("20"))
	w.syncsSecret(t, "token", "the cache lags behind our own write")
	w.Cache(t, tokenSecret("token", atVersion("21")))
	w.syncsSecret(t, "token", "a newer version that lacks a token", fills("21"))

	another := tokenSecret("token", atVersion("21"), func(secret *corev1.Secret) { secret.UID = "uid-again" })
	w.Live(t, another)
	w.Cache(t, another)
	w.syncsSecret(t, "token", "another Secret of the same name and version", strings.ReplaceAll(fills("21"), "uid-token", "uid-again"))
}

// TestAccountWatchHangs: the account exists and no watch shows it. Secrets are filled all the same
// without a request each second, and deleted soon after an account that no watch has ever shown.
func TestAccountWatchHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldAt(t, time.Time{}, tokenSecret("token"), account())
		w.Cache(t, tokenSecret("token"))
		w.runSecretLoop(t)
		w.secretLoop.Add(named("token"))
		synctest.Wait()
		want := []string{"get serviceaccounts app", "patch secrets token [uid-token 20] for app/uid-app ca.crt namespace token"}
		testutil.Check(t, "at first sight", want, w.Actions(t))
		w.Cache(t, tokenSecret("token", filled(t), atVersion("21")))
		w.secretLoop.Add(named("token"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if asked := w.Actions(t); len(asked) > 12 {
			t.Errorf("asked %d times in ten minutes: %q", len(asked), asked)
		}
		testutil.Check(t, "Events while nothing is wrong", []string(nil), w.Events())
		w.Delete(t, account())
		time.Sleep(uncachedRecheck)
		synctest.Wait()
		testutil.Check(t, "the account is gone", []string{"get serviceaccounts app", "delete secrets token [uid-token 21]"}, w.Actions(t))
	})
}

func TestNoRootCA(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tokenSecret("token"))
	w.RootCA = rootca.NewSource(nil, nil)
	w.Cache(t, tokenSecret("token", withData(corev1.ServiceAccountRootCAKey, testCA)), account())
	w.syncsSecret(t, "token", "without a root CA, ca.crt is nobody's", "patch secrets token [uid-token 20] for app/uid-app namespace token")
}

// TestNothingIsIssuedWhileTheRootCAIsUnknown: a Secret would be without it.
func TestNothingIsIssuedWhileTheRootCAIsUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tokenSecret("token"), tokenSecret("full", filled(t)), account())
	w.Cache(t, tokenSecret("token"), tokenSecret("full", filled(t)), account())
	w.Auto = true
	rootca.NewBundleController(rootca.BundleControllerConfig{Source: w.RootCA})
	for what, err := range map[string]error{"account": w.syncAccount(t.Context(), named("app")),
		"Secret": w.syncSecret(t.Context(), named("token"))} {
		if !errors.Is(err, reconcile.ErrStaleCache) {
			t.Errorf("sync of the %s: %v", what, err)
		}
	}
	w.syncsSecret(t, "full", "it lacks nothing")
	testutil.Check(t, "requests", []string(nil), w.Actions(t))
}

// TestANewRootCAWaitsItsTurn: a Secret that is complete otherwise is not written before that.
func TestANewRootCAWaitsItsTurn(t *testing.T) {
	t.Parallel()
	complete := tokenSecret("token", filled(t), withData(corev1.ServiceAccountRootCAKey, otherCA))
	w := newWorld(t, complete)
	w.Cache(t, complete, account())
	testutil.Must(t, w.syncSecret(t.Context(), named("token")))
	testutil.Check(t, "requests", []string(nil), w.Actions(t))
}

// TestRevokedKey: a token whose key was revoked is dead, and is replaced in place; one that is marked
// invalid, or that never was for this Secret, is not.
func TestRevokedKey(t *testing.T) {
	t.Parallel()
	ring := signing.NewRing(testkeys.Parse(testkeys.P256()).As(signing.Active))
	with := func(revoked bool) *signing.KeySet {
		return ring.Without(map[string]bool{testkeys.Parse(testkeys.P256Other()).ID(): revoked}).KeySet()
	}
	token := withToken(t, testkeys.P256Other(), testUID)
	for name, tc := range map[string]struct {
		secret *corev1.Secret
		keys   *signing.KeySet
		want   bool
	}{
		"revoked":        {tokenSecret("token", filled(t), token), with(true), true},
		"pruned":         {tokenSecret("token", filled(t), token), with(false), false},
		"marked invalid": {tokenSecret("token", filled(t), token, invalidSince), with(true), false},
		"of another Secret": {
			tokenSecret("token", filled(t), withData("token", controllertest.Token(t, testkeys.P256Other(), testUID, "other"))), with(true), false,
		},
		"of another account": {tokenSecret("token", filled(t), withToken(t, testkeys.P256Other(), otherUID)), with(true), false},
	} {
		plan := planSecret(tokensecrets.Observe(tc.secret), account(), nil, tc.keys)
		if plan.token != tc.want || tc.want && plan.warning.reason != "" {
			t.Errorf("%s: a new token %t, warning %+v; want %t", name, plan.token, plan.warning, tc.want)
		}
	}
}
