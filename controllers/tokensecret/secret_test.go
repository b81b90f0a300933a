// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

func TestSyncSecret(t *testing.T) {
	t.Parallel()
	everything := "patch secrets token [uid-token 20] for app/uid-1: ca.crt namespace token"
	tests := map[string]struct {
		reason      string
		secret      *corev1.Secret
		account     *corev1.ServiceAccount // nil: there is none in the cache
		live        []runtime.Object
		wantActions []string
		wantEvents  []string
	}{
		"Empty": {
			reason:      "what a user creates is filled with one request and none before it",
			secret:      tokenSecret("token"),
			account:     account(),
			wantActions: []string{everything},
		},
		"EmptyWithUID": {
			reason:      "a UID annotation that fits is no obstacle",
			secret:      tokenSecret("token", boundTo(testUID)),
			account:     account(),
			wantActions: []string{everything},
		},
		"Full": {
			reason:  "nothing is written where nothing is lacking",
			secret:  tokenSecret("token", filled(t)),
			account: account(),
		},
		"OnlyTokenMissing": {
			reason:      "emptying data.token is how people ask for a new token",
			secret:      tokenSecret("token", filled(t), withData(corev1.ServiceAccountTokenKey, "")),
			account:     account(),
			wantActions: []string{"patch secrets token [uid-token 20] for app/uid-1: token"},
		},
		"StaleCA": {
			reason:      "ca.crt follows the root CA, the token stays",
			secret:      tokenSecret("token", filled(t), withData(corev1.ServiceAccountRootCAKey, otherCA)),
			account:     account(),
			wantActions: []string{"patch secrets token [uid-token 20] for app/uid-1: ca.crt"},
		},
		"OnlyUIDMissing": {
			reason:      "both annotations belong to a complete token Secret",
			secret:      tokenSecret("token", filled(t), boundTo("")),
			account:     account(),
			wantActions: []string{"patch secrets token [uid-token 20] for app/uid-1"},
		},
		"WrongNamespaceKey": {
			reason:     "what somebody wrote is reported, not overwritten",
			secret:     tokenSecret("token", filled(t), withData(corev1.ServiceAccountNamespaceKey, "elsewhere")),
			account:    account(),
			wantEvents: []string{"Warning TokenSecretMismatch"},
		},
		"ForeignToken": {
			reason:     "a token for another Secret is reported, not overwritten",
			secret:     tokenSecret("token", filled(t), withData(corev1.ServiceAccountTokenKey, tokenFor(t, "another", testUID))),
			account:    account(),
			wantEvents: []string{"Warning TokenSecretMismatch"},
		},
		"TokenOfEarlierAccount": {
			reason:     "the token's UID is compared with the live account, not with the annotation",
			secret:     tokenSecret("token", filled(t), withData(corev1.ServiceAccountTokenKey, tokenFor(t, "token", otherUID))),
			account:    account(),
			wantEvents: []string{"Warning TokenSecretMismatch"},
		},
		"GarbageToken": {
			reason:      "no panic, no overwriting; the rest is filled",
			secret:      tokenSecret("token", withData(corev1.ServiceAccountTokenKey, "\x00not.a.token")),
			account:     account(),
			wantActions: []string{"patch secrets token [uid-token 20] for app/uid-1: ca.crt namespace"},
			wantEvents:  []string{"Warning TokenSecretMismatch"},
		},
		"UnknownKey": {
			reason: "nobody but us may know that the key is gone",
			secret: tokenSecret("token", filled(t), withData(corev1.ServiceAccountTokenKey,
				tokenSignedBy(t, testkeys.P256Other(), "token", testUID))),
			account:    account(),
			wantEvents: []string{"Warning UnknownSigningKey"},
		},
		"Immutable": {
			reason:     "an update would always fail",
			secret:     tokenSecret("token", immutable),
			account:    account(),
			wantEvents: []string{"Warning ImmutableTokenSecret"},
		},
		"ImmutableAndFull": {
			reason:  "nothing is lacking, so nothing is wrong",
			secret:  tokenSecret("token", filled(t), immutable),
			account: account(),
		},
		"MarkedInvalid": {
			reason:      "a token that the cleaner has switched off is not issued again",
			secret:      tokenSecret("token", invalidSince),
			account:     account(),
			wantActions: []string{"patch secrets token [uid-token 20] for app/uid-1: ca.crt namespace"},
			wantEvents:  []string{"Warning TokenMarkedInvalid"},
		},
		"TerminatingSecret": {
			reason:  "no token for what is going",
			secret:  tokenSecret("token", terminatingSecret),
			account: account(),
		},
		"TerminatingAccount": {
			reason:  "no token for who is going (k8s#48343)",
			secret:  tokenSecret("token"),
			account: account(terminatingAccount),
		},
		"ImpossibleAccountName": {
			reason: "no account can have this name, so nothing can be known about it",
			secret: tokenSecret("token", func(secret *corev1.Secret) {
				secret.Annotations[corev1.ServiceAccountNameKey] = "a\nb"
			}),
			account:    account(),
			wantEvents: []string{"Warning InvalidServiceAccountName"},
		},
		"AccountGone": {
			reason:      "the apiserver confirms it before the delete, which carries both preconditions",
			secret:      tokenSecret("token", filled(t)),
			wantActions: []string{"get serviceaccounts app", "delete secrets token [uid-token 20]"},
			wantEvents:  []string{"Normal OrphanedTokenSecretDeleted"},
		},
		"AccountRecreated": {
			reason:      "same name, other UID: not the account it was issued for",
			secret:      tokenSecret("token", filled(t)),
			account:     account(recreated, madeAt(1)),
			live:        []runtime.Object{account(recreated, madeAt(1))},
			wantActions: []string{"get serviceaccounts app", "delete secrets token [uid-token 20]"},
			wantEvents:  []string{"Normal OrphanedTokenSecretDeleted"},
		},
		"AccountNotCachedYet": {
			reason:      "nothing is deleted on the cache's word",
			secret:      tokenSecret("token", filled(t)),
			live:        []runtime.Object{account()},
			wantActions: []string{"get serviceaccounts app"},
		},
		"EmptyAndAccountNotCachedYet": {
			reason:      "it is filled for the account that is there, and nobody is warned of what nobody has looked at",
			secret:      tokenSecret("token"),
			live:        []runtime.Object{account()},
			wantActions: []string{"get serviceaccounts app", everything},
		},
		"AccountCachedIsThePreviousOne": {
			reason:      "it names the account that lives",
			secret:      tokenSecret("token", boundTo(testUID)),
			account:     account(recreated),
			live:        []runtime.Object{account()},
			wantActions: []string{"get serviceaccounts app", everything},
		},
		"EmptyAndTerminatingAccountNotCachedYet": {
			reason:      "no token for who is going",
			secret:      tokenSecret("token"),
			live:        []runtime.Object{account(terminatingAccount)},
			wantActions: []string{"get serviceaccounts app"},
		},
		"AppliedBeforeItsAccount": {
			reason:      "a Secret that never belonged to anybody may wait",
			secret:      tokenSecret("token"),
			wantActions: []string{"get serviceaccounts app"},
			wantEvents:  []string{"Warning ServiceAccountMissing"},
		},
		"OrphanWithTokenOnly": {
			reason:      "a token means that there was an account: no grace",
			secret:      tokenSecret("token", withData(corev1.ServiceAccountTokenKey, tokenFor(t, "token", testUID))),
			wantActions: []string{"get serviceaccounts app", "delete secrets token [uid-token 20]"},
			wantEvents:  []string{"Normal OrphanedTokenSecretDeleted"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, append(tc.live, tc.secret)...)
			w.Cache(t, tc.secret)
			if tc.account != nil {
				w.Cache(t, tc.account)
			}
			if err := w.syncSecret(t.Context(), named("token")); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.wantActions, w.actions(t)); diff != "" {
				t.Errorf("%s: actions (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.wantEvents, w.Events()); diff != "" {
				t.Errorf("%s: events (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestFillWritesWhatTheSecretShouldHold looks at the bytes that TestSyncSecret only names.
func TestFillWritesWhatTheSecretShouldHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tokenSecret("token"))
	w.Cache(t, tokenSecret("token"), account())
	if err := w.syncSecret(t.Context(), named("token")); err != nil {
		t.Fatal(err)
	}
	got, err := w.Client.Tracker().Get(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, testNamespace, "token")
	if err != nil {
		t.Fatal(err)
	}
	secret := got.(*corev1.Secret)
	if _, err := tokens.VerifyLegacy(string(secret.Data[corev1.ServiceAccountTokenKey]), w.ring); err != nil {
		t.Errorf("token: %v", err)
	}
	if observed := tokensecrets.Observe(secret); observed.Finding != "" {
		t.Errorf("the filled Secret contradicts itself: %s", observed.Finding)
	}
	if diff := cmp.Diff(testCA, string(secret.Data[corev1.ServiceAccountRootCAKey])); diff != "" {
		t.Errorf("ca.crt (-want +got):\n%s", diff)
	}
}

func TestSyncSecretAgainstARefusingAPI(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	secrets := schema.GroupResource{Resource: "secrets"}
	tests := map[string]struct {
		reason  string
		verb    string
		orphan  bool
		answer  error
		wantErr error
	}{
		"FillConflict":   {reason: "the watch brings the newer version", verb: "patch", answer: apierrors.NewConflict(secrets, "token", boom)},
		"FillNotFound":   {reason: "a Secret that is gone needs no token", verb: "patch", answer: apierrors.NewNotFound(secrets, "token")},
		"FillError":      {reason: "anything else is tried again", verb: "patch", answer: boom, wantErr: boom},
		"DeleteConflict": {reason: "it has changed: decided again", verb: "delete", orphan: true, answer: apierrors.NewConflict(secrets, "token", boom)},
		"DeleteNotFound": {reason: "somebody was faster", verb: "delete", orphan: true, answer: apierrors.NewNotFound(secrets, "token")},
		"DeleteError":    {reason: "anything else is tried again", verb: "delete", orphan: true, answer: boom, wantErr: boom},
		"LookupError":    {reason: "no answer is not a no", verb: "get", orphan: true, answer: boom, wantErr: boom},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := tokenSecret("token", boundTo(testUID))
			w := newWorld(t, secret)
			w.Cache(t, secret)
			if !tc.orphan {
				w.Cache(t, account())
			}
			w.Client.PrependReactor(tc.verb, "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.answer })
			if err := w.syncSecret(t.Context(), named("token")); !errors.Is(err, tc.wantErr) {
				t.Errorf("%s: got error %v, want %v", tc.reason, err, tc.wantErr)
			}
			if events := w.Events(); len(events) > 0 {
				t.Errorf("%s: nothing happened, yet there are Events: %v", tc.reason, events)
			}
		})
	}
}

func TestOneWriteFromOneVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tokenSecret("token"))
	w.Cache(t, tokenSecret("token"), account())
	fill := func() []string {
		t.Helper()
		if err := w.syncSecret(t.Context(), named("token")); err != nil {
			t.Fatal(err)
		}
		return w.actions(t)
	}
	if got := fill(); len(got) != 1 {
		t.Fatalf("first sync: got %v, want one write", got)
	}
	if got := fill(); got != nil {
		t.Errorf("the cache lags behind our own write: got %v, want nothing", got)
	}
	w.Cache(t, tokenSecret("token", func(secret *corev1.Secret) { secret.ResourceVersion = "21" }))
	if got := fill(); len(got) != 1 {
		t.Errorf("a newer version that lacks a token: got %v, want one write", got)
	}
}

// TestAccountWatchHangs: the account exists and no watch shows it. Secrets are filled all the same
// without a request each second, and deleted soon after an account that no watch has ever shown.
func TestAccountWatchHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, tokenSecret("token"), account())
		w.jumping()
		w.Cache(t, tokenSecret("token"))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.secretLoop.Run(ctx) }()
		defer func() { stop(); <-ended }()
		w.secretLoop.Add(named("token"))
		synctest.Wait()
		want := []string{"get serviceaccounts app", "patch secrets token [uid-token 20] for app/uid-1: ca.crt namespace token"}
		if diff := cmp.Diff(want, w.actions(t)); diff != "" {
			t.Fatalf("at first sight (-want +got):\n%s", diff)
		}
		w.Cache(t, tokenSecret("token", filled(t), func(secret *corev1.Secret) { secret.ResourceVersion = "21" }))
		w.secretLoop.Add(named("token"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if asked := w.actions(t); len(asked) > 12 {
			t.Errorf("asked %d times in ten minutes: %q", len(asked), asked)
		}
		if events := w.Events(); len(events) > 0 {
			t.Errorf("nothing is wrong, yet there are Events: %q", events)
		}
		if err := w.Client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), testNamespace, "app"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(uncachedRecheck)
		synctest.Wait()
		if diff := cmp.Diff([]string{"get serviceaccounts app", "delete secrets token [uid-token 21]"}, w.actions(t)); diff != "" {
			t.Errorf("the account is gone (-want +got):\n%s", diff)
		}
	})
}

func TestOrphanGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tokenSecret("token"))
	sync := func(version string) []string {
		t.Helper()
		w.Cache(t, tokenSecret("token", func(secret *corev1.Secret) { secret.ResourceVersion = version }))
		if err := w.syncSecret(t.Context(), named("token")); err != nil {
			t.Fatal(err)
		}
		return w.actions(t)
	}
	for _, step := range []struct {
		reason  string
		version string
		want    []string
	}{
		{"first sight: it is asked whether the account is there", "20", []string{"get serviceaccounts app"}},
		{"still within the grace", "20", nil},
		{"changed: the grace begins again", "21", []string{"get serviceaccounts app"}},
		{"the first version's grace would be over", "21", nil},
		{"the grace is over", "21", []string{"get serviceaccounts app", "delete secrets token [uid-token 21]"}},
	} {
		if diff := cmp.Diff(step.want, sync(step.version)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.reason, diff)
		}
		w.Clock.Step(testGrace/2 - 1)
		if step.version == "21" {
			w.Clock.Step(1)
		}
	}
}

func TestNoRootCA(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tokenSecret("token"))
	w.RootCA = rootca.NewSource(nil)
	w.Cache(t, tokenSecret("token", withData(corev1.ServiceAccountRootCAKey, testCA)), account())
	if err := w.syncSecret(t.Context(), named("token")); err != nil {
		t.Fatal(err)
	}
	want := []string{"patch secrets token [uid-token 20] for app/uid-1: namespace token"}
	if diff := cmp.Diff(want, w.actions(t)); diff != "" {
		t.Errorf("without a root CA, ca.crt is nobody's (-want +got):\n%s", diff)
	}
}

// TestANewRootCAWaitsItsTurn: one that is complete otherwise can wait, one that lacks its token
// cannot.
func TestANewRootCAWaitsItsTurn(t *testing.T) {
	t.Parallel()
	objects := []runtime.Object{
		account(), tokenSecret("complete", filled(t), withData(corev1.ServiceAccountRootCAKey, otherCA)),
		tokenSecret("empty", withData(corev1.ServiceAccountRootCAKey, otherCA)),
	}
	w := newWorld(t, objects...)
	w.Cache(t, objects...)
	if n := w.outdated(w.RootCA.Current()); n != 2 {
		t.Errorf("%d Secrets hold another root CA, want 2", n)
	}
	for i := range 1000 { // others are before it
		w.RootCA.Turn(corev1.ResourceSecrets, fmt.Sprint(i), w.Clock.Now())
	}
	for _, tc := range []struct {
		name string
		want []string
	}{{"complete", nil}, {"empty", []string{"patch secrets empty"}}} {
		if err := w.syncSecret(t.Context(), named(tc.name)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, action := range w.actions(t) {
			what, _, _ := strings.Cut(action, " [")
			got = append(got, what)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
