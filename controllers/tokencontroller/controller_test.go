// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// TestTerms: what was deleted before a term loses its reference, and what is deleted within one.
func TestTerms(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		secret := tokenSecret("token", filled(t), autoCreated)
		w := worldAt(t, time.Time{}, account(listed(meta.FieldManager, "token", "gone")), secret)
		w.NumberVersions("secrets")
		w.Auto = true
		references := func(when string, want ...corev1.ObjectReference) {
			t.Helper()
			time.Sleep(time.Minute)
			app := testutil.Get(w.Client.CoreV1().ServiceAccounts(testNamespace).Get(t.Context(), "app", metav1.GetOptions{}))(t)
			testutil.Check(t, "references "+when, want, app.Secrets)
		}
		w.Start(t, w.Run)()
		stop := w.Start(t, w.Run)
		references("at the start", corev1.ObjectReference{Name: "token"})
		w.Delete(t, secret)
		references("once the Secret is deleted", corev1.ObjectReference{Name: "app-token-" + testSuffix})
		w.Delete(t, account())
		time.Sleep(time.Minute)
		secrets, err := w.Client.CoreV1().Secrets(testNamespace).List(t.Context(), metav1.ListOptions{})
		testutil.Expect(t, err == nil && len(secrets.Items) == 0, "of a deleted account there is %v (%v)", secrets.Items, err)
		testutil.Check(t, "Events", []string{"Normal TokenReferenceRemoved", "Normal TokenReferenceRemoved"}, w.Events())
		stop()
	})
}

func TestCountSecondController(t *testing.T) {
	t.Parallel()
	type changes []func(*corev1.Secret)
	ours, theirs := withToken(t, testkeys.P256(), testUID), withToken(t, testkeys.P256Other(), testUID)
	rightCA, wrongCA := withData(corev1.ServiceAccountRootCAKey, testCA), withData(corev1.ServiceAccountRootCAKey, otherCA)
	unnamed := func(secret *corev1.Secret) { secret.Annotations[corev1.ServiceAccountNameKey] = "no name" }
	label := func(secret *corev1.Secret) {
		secret.Labels = map[string]string{tokensecrets.LastUsedLabel: "2026-01-01"}
	}
	another := func(secret *corev1.Secret) { secret.UID = "another" }
	noRootCA := func(w *world) { w.RootCA.Set(nil) }
	for name, tc := range map[string]struct {
		reason        string
		before, after changes
		do            func(*world)
		want          counts
	}{
		"Filled":           {after: changes{theirs}, want: counts{filled: 1}},
		"FilledWithOurKey": {reason: "by ourselves, or by one that agrees", after: changes{ours}},
		"Garbage":          {reason: "a user's nonsense has no key ID", after: changes{withData(corev1.ServiceAccountTokenKey, "hello")}},
		"Overwritten":      {reason: "a user's own, over ours", before: changes{ours}, after: changes{theirs}},
		"NotOurs":          {reason: "no account can have that name", before: changes{unnamed}, after: changes{unnamed, theirs}},
		"Invalid":          {reason: "we issue none, a user may", before: changes{invalidSince}, after: changes{invalidSince, theirs}},
		"Terminating":      {before: changes{terminating}, after: changes{terminating, theirs}},
		"Immutable":        {before: changes{immutable}, after: changes{immutable, theirs}},
		"AnotherSecret":    {reason: "of the same name, created with a token: restored, or a user's", after: changes{another, theirs}},
		"Retired": {
			reason: "that of a controller that was left behind, or the last one of ours; alerts need more",
			after:  changes{ours}, want: counts{filled: 1}, do: func(w *world) { w.rotate(t) },
		},

		"RootCAReplaced":    {before: changes{ours, rightCA}, after: changes{ours, wrongCA}, want: counts{replaced: 1}},
		"RootCAWrongBefore": {reason: "from before a takeover", before: changes{ours, wrongCA}, after: changes{ours, wrongCA, label}},
		"RootCAEmptied":     {reason: "that asks for a new one", before: changes{ours, rightCA}, after: changes{ours}},
		"NoRootCA":          {reason: "we write none", before: changes{ours, rightCA}, after: changes{ours, wrongCA}, do: noRootCA},
		"Both":              {before: changes{rightCA}, after: changes{wrongCA, theirs}, want: counts{filled: 1, replaced: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.do != nil {
				tc.do(w)
			}
			w.secretHandler().OnUpdate(
				tokensecrets.Observe(tokenSecret("mine", tc.before...)), tokensecrets.Observe(tokenSecret("mine", tc.after...)))
			got := counts{w.Series(t, "sacm_token_secrets_filled_by_others_total")[""],
				w.Series(t, "sacm_root_ca_replaced_by_others_total")["secrets"]}
			testutil.Expect(t, got == tc.want, "%s: got %+v, want %+v", tc.reason, got, tc.want)
		})
	}
}

// counts are the metrics that tell of a second token controller.
type counts struct{ filled, replaced float64 }

// rotate makes another key the active one.
func (w *world) rotate(t *testing.T) {
	t.Helper()
	w.ring.Set(signing.NewRing(testkeys.Parse(testkeys.P256Other()).As(signing.Active),
		w.ring.Ring().Active().Public().As(signing.Retired)))
}

// TestNothingIsKept: what is expected of an object is forgotten with it, and all of it with a term.
func TestNothingIsKept(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		w := worldAt(t, time.Time{}, account(), tokenSecret("empty"), tokenSecret("waits", func(secret *corev1.Secret) {
			secret.Annotations[corev1.ServiceAccountNameKey] = "nobody"
		}))
		w.Auto, w.OrphanGrace = true, time.Hour
		w.NumberVersions("secrets")
		kept := func() []int {
			return []int{len(w.written.all), len(w.waiting.all), len(w.created.all), len(w.gone.all), len(w.observed.all)}
		}
		stop := w.Start(t, w.Run)
		testutil.Pause(time.Minute)
		testutil.Check(t, "kept of a Secret that waits for its account", []int{0, 1, 0, 0, 0}, kept())
		w.gone.set(named("app"), "any", nil)
		w.created.set(named("app"), testUID, createExpectation{secret: "expected"})
		w.observed.add(tokensecrets.Observe(tokenSecret("gone", boundTo(testUID))))
		w.Delete(t, account(), tokenSecret("waits")) // the others are orphans, and deleted by the controller
		testutil.Pause(time.Minute)
		testutil.Check(t, "kept of deleted objects", make([]int, 5), kept())

		stop()
		w.Live(t, account(), tokenSecret("empty"))
		synctest.Wait()
		now := w.Config.Clock.Now()
		w.created.set(named("app"), testUID, createExpectation{secret: "of-another-term", created: true, referenced: true, at: now})
		w.written.set(named("empty"), "uid-empty/20", time.Now())
		w.Actions(t)
		testutil.Start(t, w.Run)
		testutil.Pause(time.Second)
		testutil.Check(t, "a term does not expect what an earlier one did", []string{createsOwn,
			"patch secrets empty [uid-empty 20] for app/uid-app ca.crt namespace token", referencesOwn}, sorted(w.Actions(t)))
	})
}

// TestNothingIsKeptOfWhatGoesMeanwhile: another loop may see a deletion while a request is under way.
func TestNothingIsKeptOfWhatGoesMeanwhile(t *testing.T) {
	for name, tc := range map[string]struct {
		verb string
		sync func(*world) error
		kept func(*world) int
	}{
		"Account": {"get", func(w *world) error { return w.syncReferences(t.Context(), named("app")) },
			func(w *world) int { return len(w.gone.all) }},
		"Secret": {"patch", func(w *world) error { return w.replaceCA(t.Context(), named("token")) },
			func(w *world) int { return len(w.written.all) }},
	} {
		t.Run(name, func(t *testing.T) {
			app := account(listed(meta.FieldManager, "gone"))
			secret := tokenSecret("token", filled(t), withData(corev1.ServiceAccountRootCAKey, otherCA))
			w := newWorld(t, app, secret)
			w.Cache(t, app, secret)
			asked := false
			w.Client.PrependReactor(tc.verb, "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				asked = true
				w.Uncache(t, app, secret)
				return false, nil, errors.Join(w.syncAccount(t.Context(), named("app")), w.syncSecret(t.Context(), named("token")))
			})
			err := tc.sync(w)
			testutil.Expect(t, err == nil && asked && tc.kept(w) == 0, "asked: %t, error: %v, kept: %d", asked, err, tc.kept(w))
		})
	}
}

func sorted(lines []string) []string { slices.Sort(lines); return lines }

const (
	asksAccount = "get serviceaccounts app"
	deletesIt   = "delete secrets token [uid-token 20]"
)

func (w *world) runSecretLoop(t *testing.T) {
	t.Helper()
	testutil.Start(t, func(ctx context.Context) error { w.secretLoop.Run(ctx); return nil })
	w.secretLoop.Add(named("token"))
	synctest.Wait()
}

// TestOrphanGrace: a jump of the clock neither cuts the grace short nor lengthens it, and a change of the Secret
// begins it again.
func TestOrphanGrace(t *testing.T) {
	t.Parallel()
	testutil.EachJump(t, func(t *testing.T, jump time.Duration) {
		w := worldAt(t, time.Time{}, tokenSecret("token"))
		w.Cache(t, tokenSecret("token"))
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			testutil.Check(t, when, want, w.Actions(t))
		}
		w.runSecretLoop(t)
		expect("first sight", asksAccount)
		w.Config.Clock.(*testutil.JumpingClock).Jump(jump)
		w.secretLoop.Add(named("token"))
		expect("checked again after the jump")
		time.Sleep(testGrace / 2)
		changed := tokenSecret("token", atVersion("21"))
		w.Live(t, changed)
		w.Cache(t, changed)
		w.secretLoop.Add(named("token"))
		expect("changed", asksAccount)
		time.Sleep(testGrace - time.Nanosecond)
		expect("just before the end of the grace")
		time.Sleep(time.Nanosecond)
		expect("the grace is over", asksAccount, "delete secrets token [uid-token 21]")
	})
}
