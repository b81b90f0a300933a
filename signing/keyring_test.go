// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"fmt"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
)

// TestKeyringSteps walks rings through their life, and compares all keys with their roles after each
// step. The active key signs, and none if there is no active key.
func TestKeyringSteps(t *testing.T) {
	t.Parallel()
	a, b, c := testkeys.Parse(testkeys.RSA2048()), testkeys.Parse(testkeys.RSA2048Other()), testkeys.Parse(testkeys.P256())
	againA := testkeys.Parse(testkeys.RSA2048())
	other := testkeys.Parse(testkeys.P384()).Public()
	names := map[string]string{a.ID(): "a", b.ID(): "b", c.ID(): "c", other.ID: "other"}

	offer := func(key *signing.PrivateKey) func(*signing.Keyring) {
		return func(r *signing.Keyring) { r.Set(signing.KeyFileRing(key)) }
	}
	store := func(keys ...signing.Key) func(*signing.Keyring) {
		return func(r *signing.Keyring) { r.Set(signing.NewRing(keys...)) }
	}
	activate := func(key *signing.PrivateKey, want bool) func(*signing.Keyring) {
		return func(r *signing.Keyring) {
			if got := r.Activate(key.ID()); got != want {
				t.Errorf("Activate(%s) is %v, want %v", names[key.ID()], got, want)
			}
		}
	}
	verifyOnly := func(keys ...signing.PublicKey) func(*signing.Keyring) {
		return func(r *signing.Keyring) { r.SetVerifyOnly(keys) }
	}
	type step struct {
		do   func(*signing.Keyring)
		want string
	}
	cases := map[string]struct {
		reason string
		ring   *signing.Keyring
		steps  []step
	}{
		"rotation": {
			"the next key verifies before it signs, and the old key verifies on",
			signing.NewKeyring(signing.KeyFileRing(a)), []step{
				{offer(b), "a active, b next"},
				{activate(b, true), "b active, a retired"},
				{offer(c), "b active, c next, a retired"},
				{activate(c, true), "c active, b retired, a retired"},
			},
		},
		"further keys of the file": {
			"kube-apiserver verifies with all keys of such a file",
			signing.NewKeyring(signing.KeyFileRing(a, a.Public(), other)), []step{
				{offer(a), "a active, other retired"},
				{func(r *signing.Keyring) { r.Set(signing.KeyFileRing(b, b.Public(), a.Public(), c.Public())) },
					"a active, b next, other retired, c retired"},
				{activate(b, true), "b active, a retired, other retired, c retired"},
			},
		},
		"roll back": {
			"a previously active key may come back, and is listed once",
			signing.NewKeyring(signing.KeyFileRing(a)), []step{
				{offer(b), "a active, b next"},
				{activate(b, true), "b active, a retired"},
				{offer(againA), "b active, a next"},
				{offer(b), "b active, a retired"}, // it verifies on although it was withdrawn
				{offer(againA), "b active, a next"},
				{activate(a, true), "a active, b retired"},
			},
		},
		"withdrawn": {
			"the active key was put back into the file",
			signing.NewKeyring(signing.KeyFileRing(a)), []step{
				{offer(b), "a active, b next"},
				{offer(againA), "a active"},
				{activate(b, false), "a active"},
			},
		},
		"replaced": {
			"proof for the first key says nothing of the second",
			signing.NewKeyring(signing.KeyFileRing(a)), []step{
				{offer(b), "a active, b next"},
				{offer(c), "a active, c next"},
				{activate(b, false), "a active, c next"},
				{activate(c, true), "c active, a retired"},
				{activate(c, false), "c active, a retired"},
			},
		},
		"verify only": {
			"replaced as a whole, never in the way of the others",
			signing.NewKeyring(signing.KeyFileRing(a), other, a.Public()), []step{
				{activate(a, false), "a active, other verify-only"},
				{offer(b), "a active, b next, other verify-only"},
				{verifyOnly(b.Public()), "a active, b next"},
				{offer(nil), "a active, b verify-only"},
				{verifyOnly(), "a active"},
			},
		},
		"no active key": {
			"a ring that verifies only, and gets its first key",
			signing.NewKeyring(signing.KeyFileRing(nil), other), []step{
				{func(*signing.Keyring) {}, "other verify-only"},
				{offer(a), "a next, other verify-only"},
				{activate(a, true), "a active, other verify-only"},
			},
		},
		"ring of a store": {
			"the store says which key signs and which one is gone, and the verification files stay",
			signing.NewKeyring(signing.NewRing(a.As(signing.Active)), other), []step{
				{store(b.As(signing.Next), a.As(signing.Active)), "a active, b next, other verify-only"},
				{activate(b, false), "a active, b next, other verify-only"},
				{store(a.Public().As(signing.Retired), b.As(signing.Active)), "b active, a retired, other verify-only"},
				{store(a.As(signing.Active), b.Public().As(signing.Retired)), "a active, b retired, other verify-only"},
				{verifyOnly(b.Public(), a.Public()), "a active, b retired"}, // the weightier role counts
				{store(a.As(signing.Active)), "a active, b verify-only"},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, step := range tc.steps {
				step.do(tc.ring)
				ring := tc.ring.Ring()
				var roles, listed []string
				for _, key := range ring.All() {
					roles = append(roles, names[key.ID]+" "+string(ring.Role(key.ID)))
					listed = append(listed, key.ID)
				}
				testutil.Check(t, fmt.Sprintf("%s: step %d", tc.reason, i), step.want, strings.Join(roles, ", "))
				testutil.Check(t, "keys that verify", listed, ids(tc.ring.Keys().All()))
				header, _, err := tc.ring.Sign(t.Context(), signing.JWTHeader, "e30")
				active, _, signs := strings.Cut(step.want, " active")
				if signs != (err == nil) || signs && names[signertest.KeyID(t, header)] != active {
					t.Errorf("%s: step %d: signed %s, %v", tc.reason, i, header, err)
				}
				if role := ring.Role("unknown"); role != "" {
					t.Errorf("%s: step %d: a key that is not there is %s", tc.reason, i, role)
				}
				if next := ring.Next(); strings.Contains(step.want, " next") != (next != nil) || next != nil && ring.Role(next.ID()) != signing.Next {
					t.Errorf("%s: step %d: the next key is %v", tc.reason, i, next)
				}
			}
		})
	}
}
