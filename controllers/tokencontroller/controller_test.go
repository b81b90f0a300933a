// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// between runs do before it registers a handler.
type between struct {
	cache.SharedIndexInformer

	do func()
}

func (b between) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	b.do()
	return b.SharedIndexInformer.AddEventHandler(handler)
}

// TestDeletedWhileATermBegins deletes an account's own Secret after the handler of accounts was registered
// and before that of Secrets: the account has to lose its reference and, with auto, to get another Secret.
func TestDeletedWhileATermBegins(t *testing.T) {
	t.Parallel()
	for _, auto := range []bool{true, false} {
		t.Run(fmt.Sprintf("auto=%t", auto), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				secret := tokenSecret("token", filled(t), autoCreated)
				w := worldAt(t, time.Time{}, account(listed("sa-controller-manager", "token")), secret)
				w.Auto = auto
				w.secretInformer = between{w.secretInformer, func() {
					synctest.Wait()
					w.Delete(t, secret)
					synctest.Wait()
				}}
				stop := w.Start(t, w.Run)
				defer stop()
				time.Sleep(time.Minute)
				synctest.Wait()
				got, err := w.Client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), testNamespace, "app")
				testutil.Must(t, err)
				want := 0
				if auto {
					want = 1
				}
				references := got.(*corev1.ServiceAccount).Secrets
				if len(references) != want || want == 1 && references[0].Name == "token" {
					t.Errorf("the account references %v, want %d living", references, want)
				}
			})
		})
	}
}

func TestStandbyQueuesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldAt(t, time.Time{})
		w.Cache(t, account(), tokenSecret("one"), tokenSecret("two"), tokenSecret("full", filled(t)))
		var queued []string
		w.secretLoop.Sync = func(_ context.Context, name cache.ObjectName) error {
			queued = append(queued, name.Name)
			return nil
		}
		controllertest.CheckStandby(t, w.Run, func() { w.RootCA.Set(testBundle(t)) }, &queued, "one", "two")
	})
}

func TestSecretHandlerOnTombstone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account())
	w.Cache(t, account(referencing("token")))
	last := tokenSecret("token", filled(t))
	observed := tokensecrets.Observe(last)
	w.secretHandler().OnDelete(cache.DeletedFinalStateUnknown{Key: named("token").String(), Obj: observed})

	ctx := t.Context()
	removed := make(chan struct{})
	w.Client.PrependReactor("patch", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		close(removed)
		return false, nil, nil
	})
	go w.referenceLoop.Run(ctx)
	<-removed
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
	cases := map[string]struct {
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
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.do != nil {
				tc.do(w)
			}
			w.secretHandler().OnUpdate(
				tokensecrets.Observe(tokenSecret("mine", tc.before...)), tokensecrets.Observe(tokenSecret("mine", tc.after...)))
			got := counts{w.Series(t, "sacm_token_secrets_filled_by_others_total")[""],
				w.Series(t, "sacm_root_ca_replaced_by_others_total")["secrets"]}
			if got != tc.want {
				t.Errorf("%s: got %+v, want %+v", tc.reason, got, tc.want)
			}
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
