// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/internal/testutil"
)

const (
	asksAccount = "get serviceaccounts app"
	deletesIt   = "delete secrets token [uid-token 20]"
)

// TestOneListForManyOrphans: what is deleted rests on a list that began after the Secret was seen in
// this version.
func TestOneListForManyOrphans(t *testing.T) {
	t.Parallel()
	const lists = "list serviceaccounts"
	cases := map[string]struct {
		reason  string
		live    *corev1.ServiceAccount
		err     error // of the list
		others  int   // accounts
		changed bool  // while it is listed
		asks    []string
		want    []string
	}{
		"Gone": {reason: "the list lacks the account", asks: []string{lists}, want: []string{deletesIt}},
		"NotCached": {
			reason: "the account lives and the cache lacks it", live: account(), asks: []string{lists},
			want: []string{"patch secrets token [uid-token 20] for app/uid-app ca.crt namespace token"},
		},
		"Replaced": {
			reason: "the account that lives has another UID", live: account(recreated), asks: []string{lists}, want: []string{deletesIt},
		},
		"Changed": {reason: "another version was not asked for", changed: true, asks: []string{lists}},
		"NoAnswer": {
			reason: "the cluster's list and the namespace's failed: each is read", err: errors.New("boom"), asks: []string{lists, lists},
			want: []string{asksAccount, deletesIt},
		},
		"ManyOthers": {reason: "a list is more work", others: 2*listedPerGet + 1, want: []string{asksAccount, deletesIt}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			secret := tokenSecret("token", boundTo(testUID))
			w := newWorld(t, secret)
			w.gets.SetBurst(0)
			w.Cache(t, secret, tokenSecret("sibling", boundTo(testUID)))
			if tc.live != nil {
				w.Live(t, tc.live)
			}
			for i := range tc.others {
				w.Cache(t, account(func(a *corev1.ServiceAccount) { a.Name = fmt.Sprint(i) }))
			}
			if tc.err != nil {
				w.Fail("list", "serviceaccounts", tc.err)
			}
			for range 2 {
				w.syncsSecret(t, "token", "it waits")
			}
			w.syncsSecret(t, "sibling", "it waits too")
			for _, phase := range []string{"more may come", "none came"} {
				if asked := w.Actions(t); len(asked) > 0 {
					t.Errorf("%s: %q", phase, asked)
				}
				testutil.Must(t, w.syncLookups(t.Context(), lookupKey{}))
			}
			testutil.Check(t, tc.reason, tc.asks, w.Actions(t))
			if tc.changed {
				w.Cache(t, tokenSecret("token", boundTo(testUID), atVersion("21")))
			}
			w.syncsSecret(t, "token", tc.reason, tc.want...)
		})
	}
}

// TestOrphansAreCollected: those that come within 50 ms of each other share one list.
func TestOrphansAreCollected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const orphans = 20
		w := worldAt(t, time.Time{})
		w.gets.SetBurst(0)
		testutil.Start(t, func(ctx context.Context) error { w.lookupLoop.Run(ctx); return nil })
		testutil.Start(t, func(ctx context.Context) error { w.secretLoop.Run(ctx); return nil })
		for i := range orphans {
			secret := tokenSecret(fmt.Sprint("token-", i), boundTo(testUID))
			w.Live(t, secret)
			w.Cache(t, secret)
			w.secretLoop.Add(named(secret.Name))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(3 * collectPeriod)
		synctest.Wait()
		if got := w.Actions(t); len(got) != 1+orphans || got[0] != "list serviceaccounts" {
			t.Errorf("%d requests, want one list and %d deletions: %q", len(got), orphans, got)
		}
	})
}

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
		w.gets.SetBurst(0) // a list does not do: an account that is created after it is the one
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
