// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
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
			reason: "emptying data.token is how people ask for a new token", filled: true,
			change: withData(corev1.ServiceAccountTokenKey, ""),
			want:   []string{fills + " token"},
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
			uncached: true, reason: "no answer is not a no", filled: true, fails: "get", answer: boom, want: []string{asksAccount},
			err: boom,
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
			testutil.Expect(t, w.secretDue(w.secrets.Get(named("token"))) || len(tc.want)+len(tc.events) == 0,
				"%s: a new leader does not queue it",
				tc.reason)
			if tc.fails != "" {
				w.Fail(tc.fails, "*", tc.answer)
			}
			err := errors.Join(w.syncSecret(t.Context(), named("token")), w.replaceCA(t.Context(), named("token")))
			testutil.Expect(t, errors.Is(err, tc.err), "%s: got error %v, want %v", tc.reason, err, tc.err)
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
	testutil.InBubble(t, func(t *testing.T) {
		w := worldAt(t, time.Time{}, tokenSecret("token"), account())
		w.Cache(t, tokenSecret("token"))
		w.runSecretLoop(t)
		w.secretLoop.Add(named("token"))
		synctest.Wait()
		want := []string{"get serviceaccounts app", "patch secrets token [uid-token 20] for app/uid-app ca.crt namespace token"}
		testutil.Check(t, "at first sight", want, w.Actions(t))
		w.Cache(t, tokenSecret("token", filled(t), atVersion("21")))
		w.secretLoop.Add(named("token"))
		testutil.Pause(10 * time.Minute)
		asked := w.Actions(t)
		testutil.Expect(t, len(asked) <= 12, "asked %d times in ten minutes: %q", len(asked), asked)
		testutil.Check(t, "Events while nothing is wrong", []string(nil), w.Events())
		w.Delete(t, account())
		testutil.Pause(uncachedRecheck)
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
		testutil.Expect(t, errors.Is(err, reconcile.ErrStaleCache), "sync of the %s: %v", what, err)
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
			tokenSecret("token", filled(t), withData("token", controllertest.Token(t, testkeys.P256Other(), testUID, "other"))), with(true),
			false,
		},
		"of another account": {tokenSecret("token", filled(t), withToken(t, testkeys.P256Other(), otherUID)), with(true), false},
	} {
		plan := planSecret(tokensecrets.Observe(tc.secret), account(), nil, tc.keys)
		testutil.Expect(t, plan.token == tc.want && (!tc.want || plan.warning.reason == ""), "%s: a new token %t, warning %+v; want %t",
			name,
			plan.token, plan.warning, tc.want)
	}
}

// TestManyReferencesCostFewRequests: a user may list any number of Secrets and change the account every two seconds.
func TestManyReferencesCostFewRequests(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, pattern string
		reads           []string
		listed          bool
	}{
		"MadeUp":          {"no token controller chooses such names", "made-up-%d", nil, false},
		"AsOfControllers": {"one list in ten seconds", "app-token-%05d", []string{"list secrets"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			names := make([]string, 4000)
			for i := range names {
				names[i] = fmt.Sprintf(tc.pattern, i)
			}
			w := newWorld(t, account())
			w.Auto = true
			at := func(version string) {
				w.Cache(t, account(referencing(names...), func(a *corev1.ServiceAccount) { a.ResourceVersion = version }))
			}
			at("10")
			w.Fail("create", "secrets", errors.New("boom"))
			_ = w.syncAccount(t.Context(), named("app"))
			testutil.Check(t, tc.reason, append(tc.reads, createsOwn), w.Actions(t))
			_ = w.syncAccount(t.Context(), named("app"))
			testutil.Check(t, "the same version: it is not read again", []string{strings.TrimSuffix(createsOwn, " token")}, w.Actions(t))
			for second := 2; second < 10; second += 2 {
				w.Clock.Step(2 * time.Second)
				at(fmt.Sprint(10 + second))
				_ = w.syncAccount(t.Context(), named("app"))
				asked := w.Actions(t)
				testutil.Expect(t, (!tc.listed || len(asked) == 0) && len(asked) <= 1, "after %d s: %q", second, asked)
			}
			w.Clock.Step(2 * time.Second)
			_ = w.syncAccount(t.Context(), named("app"))
			testutil.Check(t, "after ten seconds", append(tc.reads, strings.TrimSuffix(createsOwn, " token")), w.Actions(t))
		})
	}
}

// TestHandlersReadFewReferences: Due runs on the goroutine of an informer's handler.
func TestHandlersReadFewReferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Auto = true
	counting := &countingIndexer{Indexer: w.secretInformer.GetIndexer()}
	w.secrets = tokensecrets.ListerOf(counting)
	own := tokenSecret("app-token-bcdfg", filled(t), autoCreated)
	w.Cache(t, own)
	for n, want := range map[int]bool{0: true, 1: false, fewReferences: false, fewReferences + 1: true, 10000: true} {
		var names []string
		if n > 0 {
			names = append(names, own.Name)
		}
		for i := len(names); i < n; i++ {
			names = append(names, fmt.Sprint("opaque-", i))
		}
		counting.reads = 0
		if due := w.accountDue(account(referencing(names...))); due != want || counting.reads > fewReferences {
			t.Errorf("%d references: due %t after %d reads, want %t", n, due, counting.reads, want)
		}
	}
	testutil.Expect(t, w.accountDue(account(listed(meta.FieldManager, own.Name, "gone"))),
		"a reference of a token controller to a Secret that is gone is not due")
}

// countingIndexer counts reads.
type countingIndexer struct {
	cache.Indexer

	reads int
}

func (c *countingIndexer) GetByKey(key string) (any, bool, error) {
	c.reads++
	return c.Indexer.GetByKey(key)
}

func (c *countingIndexer) ByIndex(name, value string) ([]any, error) {
	c.reads += len(c.Indexer.ListKeys())
	return c.Indexer.ByIndex(name, value)
}

// TestAWriteThatChangedNothing: a policy or webhook of others took it out, and kube-apiserver answers 200.
func TestAWriteThatChangedNothing(t *testing.T) {
	t.Parallel()
	ours := tokenSecret("app-token-bcdfg", filled(t), autoCreated)
	for name, tc := range map[string]struct {
		reason  string
		answer  runtime.Object
		account *corev1.ServiceAccount
		secret  *corev1.Secret
		sync    func(*world) error
	}{
		"Fill": {"all of it", tokenSecret("token"), account(), tokenSecret("token"), func(w *world) error {
			return w.syncSecret(t.Context(), named("token"))
		}},
		"FillButTheToken": {
			"another version, without a token", tokenSecret("token", atVersion("21"), boundTo(testUID)), account(), tokenSecret("token"),
			func(w *world) error { return w.syncSecret(t.Context(), named("token")) },
		},
		"Reference": {"no reference", account(), account(), ours, func(w *world) error {
			w.Auto = true
			return w.syncAccount(t.Context(), named("app"))
		}},
		"Dereference": {"the reference is back", account(), account(listed(meta.FieldManager, "gone")), nil, func(w *world) error {
			return w.syncReferences(t.Context(), named("app"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Cache(t, tc.account)
			if tc.secret != nil {
				w.Cache(t, tc.secret)
			}
			w.Client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, tc.answer, nil })
			for try := range 2 {
				err := tc.sync(w)
				testutil.Expect(t, errors.Is(err, meta.ErrUnchanged), "%s, try %d: error %v, want %v", tc.reason, try, err,
					meta.ErrUnchanged)
				testutil.CheckContains(t, tc.reason+": requests", "patch", strings.Join(w.Actions(t), ", "))
			}
			testutil.Check(t, tc.reason, []string{"Warning TokenSecretRefused"}, w.Events()[:1])
			for _, series := range []string{"sacm_legacy_tokens_issued_total", "sacm_token_references_removed_total"} {
				counted := w.Series(t, series)
				testutil.Expect(t, len(counted) == 0, "%s: %s is %v", tc.reason, series, counted)
			}
		})
	}
}

// TestOthersDeleteEachSecret: an account gets one in ten seconds, with an Event and a counter from the third one on.
func TestOthersDeleteEachSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account())
	w.Auto = true
	w.Cache(t, account())
	for n := range 4 {
		w.NewSuffix = func() string { return fmt.Sprint("nr-", n, n) }
		secret := tokenSecret(tokensecrets.NewName("app", w.NewSuffix()), filled(t), autoCreated)
		w.syncsAccount(t, "created", strings.ReplaceAll(createsOwn, "bcdfg", w.NewSuffix()),
			strings.ReplaceAll(referencesOwn, "bcdfg", w.NewSuffix()))
		w.Cache(t, secret, account(referencing(secret.Name)))
		w.syncsAccount(t, "there")
		w.Uncache(t, secret)
		w.Cache(t, account())
		w.syncsAccount(t, "deleted at once")
		w.Clock.Step(undonePeriod - time.Second)
		w.syncsAccount(t, "nine seconds later")
		w.Clock.Step(time.Second)
		var want []string
		if n == 2 { // once, as the API combines what is the same
			want = []string{"Warning TokenSecretsDeletedByOthers"}
		}
		testutil.Check(t, fmt.Sprintf("Events after %d creations", n+1), want, w.Events())
	}
	testutil.Check(t, "counter", 2.0, w.Series(t, "sacm_token_secrets_deleted_by_others_total")[""])
}

// TestNoSignatureAfterARefusal: a quota may refuse for days, and a key in an HSM is slow. The Secret is filled once it is there.
func TestNoSignatureAfterARefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account())
	w.Auto = true
	w.Cache(t, account())
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", errors.New("exceeded quota: few"))
	w.FailNext("create", "secrets", quota, quota)
	unsigned := strings.TrimSuffix(createsOwn, " token")
	for n, want := range [][]string{{createsOwn}, {unsigned}, {unsigned, referencesOwn}} {
		err := w.syncAccount(t.Context(), named("app"))
		testutil.Check(t, fmt.Sprint("try ", n), want, w.Actions(t))
		refused := err != nil
		testutil.Expect(t, refused == (n < 2) && (!refused || strings.Contains(err.Error(), "exceeded quota: few")), "try %d: error %v", n,
			err)
	}
	testutil.Check(t, "Events", []string{"Warning TokenSecretRefused"}, w.Events())
	counted := w.Series(t, "sacm_legacy_tokens_issued_total")
	testutil.Expect(t, len(counted) == 0, "issued: %v", counted)
}

// TestARefusedFill: the users of a Secret read in an Event who refuses the write. The author of a policy may quote what the Secret holds
// besides, which is in no cache.
func TestARefusedFill(t *testing.T) {
	t.Parallel()
	const policy = `secrets "token" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request`
	for said, want := range map[string]string{
		": only the operator may change this Secret": policy + ": only the operator may change this Secret",
		": its password is hunter2":                  policy + "; its audit log has the rest, which may quote the Secret",
	} {
		secret := tokenSecret("token", withData("password", "hunter2"))
		w := newWorld(t, secret)
		w.Cache(t, secret, account())
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "token", nil)
		refused.ErrStatus.Message = policy + said
		w.FailNext("patch", "secrets", refused)
		err := w.syncSecret(t.Context(), named("token"))
		testutil.Expect(t, apierrors.IsForbidden(err) && strings.HasSuffix(err.Error(), want), "error %v, want %q", err, want)
		testutil.Check(t, "Events", []string{"token: Warning TokenSecretRefused: populate token secret ns/token: " +
			"kube-apiserver answered 403 Forbidden: " + want}, w.Recorded.Lines())
	}
}

// BenchmarkSyncSecret is what this program adds to a request: one sync of a Secret that
// lacks everything, with a P-256 key and a client that does nothing; and of one that
// lacks nothing, which is what most syncs are.
func BenchmarkSyncSecret(b *testing.B) {
	for name, changes := range map[string][]func(*corev1.Secret){"empty": nil, "filled": {filled(b)}} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			w.Controller.Client = idle{}
			w.Cache(b, account(), tokenSecret("token", changes...))
			key := cache.NewObjectName(testNamespace, "token")
			b.ReportAllocs()
			for b.Loop() {
				w.written.reset() // or the second sync would wait for the watch
				testutil.Must(b, w.syncSecret(b.Context(), key))
			}
		})
	}
}

// idle is a client that does nothing.
type idle struct{ kubernetes.Interface }

func (idle) CoreV1() corev1client.CoreV1Interface { return idleCore{} }

type idleCore struct{ corev1client.CoreV1Interface }

func (idleCore) Secrets(string) corev1client.SecretInterface { return idleSecrets{} }

// idleSecrets takes every patch and does nothing with it.
type idleSecrets struct{ corev1client.SecretInterface }

func (idleSecrets) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*corev1.Secret, error) {
	return &corev1.Secret{}, nil
}
