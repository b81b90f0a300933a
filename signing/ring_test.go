// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"slices"
	"testing"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// TestKeyringTakesAStoresRings puts the states of a rotation into a ring, as a store of
// a key ring file does.
func TestKeyringTakesAStoresRings(t *testing.T) {
	t.Parallel()
	a, b, other := private(t, testkeys.RSA2048()), private(t, testkeys.P256()), private(t, testkeys.P384())
	activeA, activeB := a.As(signing.Active), b.As(signing.Active)
	keyring := signing.NewKeyring(signing.NewRing(activeA), other.Public())
	steps := []struct {
		reason string
		keys   []signing.Key
		want   []string // key IDs that verify, in their order
	}{
		{"one key", []signing.Key{activeA}, []string{a.ID(), other.ID()}},
		{"published", []signing.Key{b.As(signing.Next), activeA}, []string{a.ID(), b.ID(), other.ID()}},
		{"activated", []signing.Key{a.Public().As(signing.Retired), activeB}, []string{b.ID(), a.ID(), other.ID()}},
		{"rolled back", []signing.Key{activeA, b.Public().As(signing.Retired)}, []string{a.ID(), b.ID(), other.ID()}},
		{"pruned", []signing.Key{activeA}, []string{a.ID(), other.ID()}},
	}
	for _, step := range steps {
		ring := signing.NewRing(step.keys...)
		keyring.Set(ring)
		got := keyring.Ring()
		if got := ids(keyring.Keys().All()); !slices.Equal(got, step.want) {
			t.Errorf("%s: %v verify, want %v", step.reason, got, step.want)
		}
		if got.Active() != ring.Active() || got.Next() != ring.Next() {
			t.Errorf("%s: %v signs, %v is next", step.reason, got.Active(), got.Next())
		}
		for _, key := range step.keys {
			if got := got.Role(key.ID); got != key.Role {
				t.Errorf("%s: key %s is %q, want %q", step.reason, key.ID, got, key.Role)
			}
		}
		if next := ring.Next(); next != nil && keyring.Activate(next.ID()) {
			t.Errorf("%s: the next key was activated past the store", step.reason)
		}
	}
	keyring.SetVerifyOnly([]signing.PublicKey{b.Public()})
	if got := keyring.Ring().Role(b.ID()); got != signing.VerifyOnly || keyring.Ring().Role(other.ID()) != "" {
		t.Errorf("after another verification key file was read its key is %q", got)
	}
}

// TestRingRoles: a key that has two roles is what the weightier one says, and is listed once.
func TestRingRoles(t *testing.T) {
	t.Parallel()
	a, b := private(t, testkeys.P256()), private(t, testkeys.P384())
	ring := signing.NewRing(a.Public().As(signing.VerifyOnly), b.Public().As(signing.Retired), a.As(signing.Active),
		b.Public().As(signing.VerifyOnly))
	var got []string
	for _, key := range ring.All() {
		got = append(got, key.ID+" "+string(key.Role))
	}
	if want := []string{a.ID() + " active", b.ID() + " retired"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if ring.Role("unknown") != "" || ring.Role("") != "" {
		t.Error("a key that is not there has a role")
	}
}
