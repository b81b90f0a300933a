// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/internal/testutil"
)

// Which events wake which namespace. What is then done is for TestSync.
func TestFilters(t *testing.T) {
	t.Parallel()
	type handlers struct{ namespaces, accounts cache.ResourceEventHandler }
	cases := map[string]struct {
		reason string
		event  func(handlers)
		want   []string
	}{
		"NamespaceAdded": {event: func(h handlers) { h.namespaces.OnAdd(active("shop"), false) }, want: []string{"shop"}},
		"NamespaceListed": {
			reason: "the whole cache is looked at once", event: func(h handlers) { h.namespaces.OnAdd(active("shop"), true) },
			want: []string{"shop"},
		},
		"NamespaceUpdated": {event: func(h handlers) { h.namespaces.OnUpdate(active("shop"), active("shop")) }, want: []string{"shop"}},
		"NamespaceDeleted": {event: func(h handlers) { h.namespaces.OnDelete(terminating("shop")) }},
		"NamespaceMissed":  {event: func(h handlers) { h.namespaces.OnDelete(cache.DeletedFinalStateUnknown{Key: "shop"}) }},

		"AccountAdded":   {event: func(h handlers) { h.accounts.OnAdd(account("shop", "default"), false) }},
		"AccountUpdated": {event: func(h handlers) { h.accounts.OnUpdate(account("shop", "default"), account("shop", "default")) }},
		"AccountDeleted": {event: func(h handlers) { h.accounts.OnDelete(account("shop", "default")) }, want: []string{"shop"}},
		"SecondDeleted":  {event: func(h handlers) { h.accounts.OnDelete(account("shop", "builder")) }, want: []string{"shop"}},
		"OtherDeleted":   {reason: "a user's own account", event: func(h handlers) { h.accounts.OnDelete(account("shop", "other")) }},
		"NamesakeDeleted": {
			reason: "the namespace is called like an account",
			event:  func(h handlers) { h.accounts.OnDelete(account("default", "other")) },
		},
		"Tombstone": {
			reason: "a deletion that the watch missed",
			event: func(h handlers) {
				h.accounts.OnDelete(cache.DeletedFinalStateUnknown{Key: "shop/default", Obj: account("shop", "default")})
			},
			want: []string{"shop"},
		},
		"TombstoneWithoutObject": {
			reason: "its key is enough",
			event:  func(h handlers) { h.accounts.OnDelete(cache.DeletedFinalStateUnknown{Key: "shop/default"}) },
			want:   []string{"shop"},
		},
		"TombstoneOfOther": {event: func(h handlers) { h.accounts.OnDelete(cache.DeletedFinalStateUnknown{Key: "shop/other"}) }},
		"BadTombstone":     {event: func(h handlers) { h.accounts.OnDelete(cache.DeletedFinalStateUnknown{Key: "a/b/c"}) }},
		"NoObject":         {event: func(h handlers) { h.accounts.OnDelete("default") }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := controllertest.NewWorld(time.Time{})
				c := New(Config{Client: w.Client, Informers: w.Informers, Names: []string{"default", "builder"}})
				var woken []string
				c.queue.Workers = 1
				c.queue.Sync = func(_ context.Context, key string) error {
					woken = append(woken, key)
					return nil
				}
				stop := testutil.Start(t, func(ctx context.Context) error { c.queue.Run(ctx); return nil })
				tc.event(handlers{c.namespaceHandler(), c.accountHandler()})
				synctest.Wait()
				stop()
				testutil.Check(t, tc.reason+": woken", tc.want, woken)
			})
		})
	}
}
