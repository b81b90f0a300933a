// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/testutil"
)

// TestManagedNeverRefused: through rollovers, deletions and damage no caller ever meets a leaf that it cannot verify,
// although what is registered follows the leader two seconds late. The follower does not register, and so
// cannot learn what callers know: a CA may leave the Secret while it still serves with a leaf of it.
func TestManagedNeverRefused(t *testing.T) {
	damage := overwrite(keyActiveCert, "")
	for name, tc := range map[string]struct {
		reason string
		config ManagedConfig
		every  time.Duration
		harm   map[int]func(*testing.T, *fake.Clientset) // by step of 720
		cas    int                                       // of which leaves are, at least
		most   int                                       // in the caBundle
	}{
		"three lives of a CA": {
			reason: "rollovers are announced", config: ManagedConfig{CALifetime: 10 * day, LeafLifetime: day}, every: time.Hour,
			harm: map[int]func(*testing.T, *fake.Clientset){100: damage, 200: remove, 350: damage, 450: remove, 600: damage, 700: remove},
			cas:  5, most: 3,
		},
		"deleted twice": {
			reason: "with the second rollover the first CA is no longer the previous one", every: time.Second,
			harm: map[int]func(*testing.T, *fake.Clientset){10: remove, 70: remove}, cas: 3, most: 4,
		},
		"replaced by hand": {
			reason: "the place of the previous CA is taken", every: time.Second,
			harm: map[int]func(*testing.T, *fake.Clientset){10: putOther}, cas: 2, most: 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// As it is some days after a rollover.
				previous, first := madeAt(t, time.Now().Add(-2*day), 365*day), madeAt(t, time.Now().Add(-day), 365*day)
				client := fake.NewClientset(secretWith(t, state{active: first, previous: previous.cert}))
				tc.config.Client = client
				replicas := map[string]*Managed{"leader": run(t, tc.config), "follower": run(t, tc.config)}
				leader, registered, seen := replicas["leader"], &configurations{}, map[string]bool{}
				registered.follow(leader)
				for step := range 720 {
					if harm := tc.harm[step]; harm != nil {
						harm(t, client)
					}
					pause(tc.every)
					for who, m := range replicas {
						if err := registered.accept(m); err != nil {
							t.Fatalf("%s: step %d: the %s is refused: %v", tc.reason, step, who, err)
						}
					}
					seen[leader.current.Load().serving.Leaf.Issuer.CommonName] = true
					if certificates := len(parse(t, leader.CABundle())); certificates > tc.most {
						t.Fatalf("%s: step %d: the caBundle has grown to %d certificates", tc.reason, step, certificates)
					}
				}
				if len(seen) < tc.cas {
					t.Errorf("%s: leaves were of %d CAs, want at least %d", tc.reason, len(seen), tc.cas)
				}
				active := read(secretOf(t, client)).active
				for who, m := range replicas {
					testutil.CheckError(t, "the leaf of the "+who+" in the end", "", accepts(m, pki.CertPEM(active.cert), "127.0.0.1"))
				}
				if bytes.Contains(leader.CABundle(), pki.CertPEM(first.cert)) {
					t.Errorf("%s: the caBundle still has a CA that is not in use", tc.reason)
				}
			})
		})
	}
}
