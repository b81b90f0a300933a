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
	a, b := testkeys.Parse(testkeys.RSA2048()), testkeys.Parse(testkeys.RSA2048Other())
	other := testkeys.Parse(testkeys.P384()).Public()
	names := map[string]string{a.ID(): "a", b.ID(): "b", other.ID: "other"}

	store := func(keys ...signing.Key) func(*signing.Keyring) {
		return func(r *signing.Keyring) { r.Set(signing.NewRing(keys...)) }
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
		"key file": {
			"kube-apiserver verifies with all keys of such a file, too",
			signing.NewKeyring(signing.KeyFileRing(a, a.Public(), other)), []step{
				{func(*signing.Keyring) {}, "a active, other retired"},
			},
		},
		"verify only": {
			"verification files are replaced as a whole, and never in the way of the key that signs",
			signing.NewKeyring(signing.KeyFileRing(a), other, a.Public()), []step{
				{func(*signing.Keyring) {}, "a active, other verify-only"},
				{verifyOnly(b.Public()), "a active, b verify-only"},
				{verifyOnly(), "a active"},
			},
		},
		"no active key": {
			"a ring that verifies only, and gets its first key",
			signing.NewKeyring(signing.KeyFileRing(nil), other), []step{
				{func(*signing.Keyring) {}, "other verify-only"},
				{store(a.As(signing.Active)), "a active, other verify-only"},
			},
		},
		"ring of a store": {
			"the store says which key signs and which one is gone, and the verification files stay",
			signing.NewKeyring(signing.NewRing(a.As(signing.Active)), other), []step{
				{store(b.As(signing.Next), a.As(signing.Active)), "a active, b next, other verify-only"},
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
				testutil.Expect(t, signs == (err == nil) && (!signs || names[signertest.KeyID(t, header)] == active), "%s: step %d: signed %s, %v",
					tc.reason, i, header, err)
				role := ring.Role("unknown")
				testutil.Expect(t, role == "", "%s: step %d: a key that is not there is %s", tc.reason, i, role)
				if next := ring.Next(); strings.Contains(step.want, " next") != (next != nil) || next != nil && ring.Role(next.ID()) != signing.Next {
					t.Errorf("%s: step %d: the next key is %v", tc.reason, i, next)
				}
			}
		})
	}
}
