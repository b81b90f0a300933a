// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"context"
	"encoding/base64"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

func TestKeySet(t *testing.T) {
	t.Parallel()
	rsa, ec := private(t, testkeys.RSA2048()).Public(), private(t, testkeys.P256()).Public()
	set := signing.NewKeySet(rsa, ec, rsa)

	if diff := cmp.Diff([]string{rsa.ID, ec.ID}, ids(set.All())); diff != "" {
		t.Errorf("duplicates must collapse and the order stay: -want +got:\n%s", diff)
	}
	if got, ok := set.Lookup(ec.ID); !ok || got.ID != ec.ID || got.Algorithm != "ES256" {
		t.Errorf("Lookup returned %v, %v", got, ok)
	}
	for _, id := range []string{"", "unknown", "../../etc/passwd", ec.ID + "=", strings.ToLower(ec.ID)} {
		if _, ok := set.Lookup(id); ok {
			t.Errorf("Lookup(%q) found a key", id)
		}
	}
	set.All()[0] = signing.PublicKey{ID: "overwritten"}
	if set.All()[0].ID != rsa.ID {
		t.Error("the caller's slice is the set's own")
	}
	var none *signing.KeySet
	if _, ok := none.Lookup("x"); ok || none.All() != nil {
		t.Error("the nil set is not empty")
	}
}

// TestKeyringSteps walks rings through their life and compares the whole visible state after each
// step.
func TestKeyringSteps(t *testing.T) {
	t.Parallel()
	a, b, c := private(t, testkeys.RSA2048()), private(t, testkeys.RSA2048Other()), private(t, testkeys.P256())
	againA := private(t, testkeys.RSA2048())
	other := private(t, testkeys.P384()).Public()
	names := map[string]string{a.ID(): "a", b.ID(): "b", c.ID(): "c", other.ID: "other"}

	offer := func(key *signing.PrivateKey) func(*signing.Keyring) {
		return func(r *signing.Keyring) { r.Set(signing.KeyFileRing(key)) }
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
		want string // active, next, verification keys
	}
	cases := map[string]struct {
		reason string
		ring   *signing.Keyring
		steps  []step
	}{
		"rotation": {
			"the next key verifies before it signs, and the old key verifies on",
			signing.NewKeyring(signing.KeyFileRing(a)), []step{
				{offer(b), "a b a,b"},
				{activate(b, true), "b - b,a"},
				{offer(c), "b c b,c,a"},
				{activate(c, true), "c - c,b,a"},
			},
		},
		"roll back": {
			"a previously active key may come back, and is listed once",
			signing.NewKeyring(signing.KeyFileRing(a)), []step{
				{offer(b), "a b a,b"},
				{activate(b, true), "b - b,a"},
				{offer(againA), "b a b,a"},
				{offer(b), "b - b,a"}, // it verifies on although it was withdrawn
				{offer(againA), "b a b,a"},
				{activate(a, true), "a - a,b"},
			},
		},
		"withdrawn": {
			"the active key was put back into the file",
			signing.NewKeyring(signing.KeyFileRing(a)), []step{
				{offer(b), "a b a,b"},
				{offer(againA), "a - a"},
				{activate(b, false), "a - a"},
			},
		},
		"withdrawn by nil": {
			"no key is no next key",
			signing.NewKeyring(signing.KeyFileRing(a)), []step{{offer(b), "a b a,b"}, {offer(nil), "a - a"}},
		},
		"replaced": {
			"proof for the first key says nothing of the second",
			signing.NewKeyring(signing.KeyFileRing(a)), []step{
				{offer(b), "a b a,b"},
				{offer(c), "a c a,c"},
				{activate(b, false), "a c a,c"},
				{activate(c, true), "c - c,a"},
				{activate(c, false), "c - c,a"},
			},
		},
		"nothing offered": {
			"the active key is not the next one",
			signing.NewKeyring(signing.KeyFileRing(a)), []step{{activate(a, false), "a - a"}},
		},
		"verify only": {
			"replaced as a whole, never in the way of the others",
			signing.NewKeyring(signing.KeyFileRing(a), other, a.Public()), []step{
				{func(*signing.Keyring) {}, "a - a,other"},
				{offer(b), "a b a,b,other"},
				{verifyOnly(b.Public()), "a b a,b"},
				{offer(nil), "a - a,b"},
				{verifyOnly(), "a - a"},
			},
		},
		"no active key": {
			"a ring that verifies only, and gets its first key",
			signing.NewKeyring(signing.KeyFileRing(nil), other), []step{
				{func(*signing.Keyring) {}, "- - other"},
				{offer(a), "- a a,other"},
				{activate(a, true), "a - a,other"},
			},
		},
	}
	name := func(key *signing.PrivateKey) string {
		if key == nil {
			return "-"
		}
		return names[key.ID()]
	}
	for caseName, tc := range cases {
		t.Run(caseName, func(t *testing.T) {
			t.Parallel()
			for i, step := range tc.steps {
				step.do(tc.ring)
				var keys []string
				for _, key := range tc.ring.Keys().All() {
					keys = append(keys, names[key.ID])
				}
				got := name(tc.ring.Ring().Active()) + " " + name(tc.ring.Ring().Next()) + " " + strings.Join(keys, ",")
				if diff := cmp.Diff(step.want, got); diff != "" {
					t.Errorf("%s: step %d: -want +got:\n%s", tc.reason, i, diff)
				}
			}
		})
	}
}

func TestKeyringSignsWithActiveKey(t *testing.T) {
	t.Parallel()
	a, b := private(t, testkeys.P256()), private(t, testkeys.P256Other())
	ring := signing.NewKeyring(signing.KeyFileRing(a))
	signedBy := func(signer signing.Signer) string {
		header, _, err := signer.Sign(t.Context(), signing.JWTHeader, "e30")
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := base64.RawURLEncoding.DecodeString(header)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []*signing.PrivateKey{a, b} {
			if strings.Contains(string(decoded), key.ID()) {
				return key.ID()
			}
		}
		return ""
	}
	ring.Set(signing.KeyFileRing(b))
	if got := signedBy(ring); got != a.ID() {
		t.Errorf("the ring signed with %s while %s is active", got, a.ID())
	}
	if got := signedBy(ring.Ring().Next()); got != b.ID() {
		t.Errorf("the next key signed with %s, want %s", got, b.ID())
	}
	ring.Activate(b.ID())
	if got := signedBy(ring); got != b.ID() {
		t.Errorf("the ring signed with %s after %s became active", got, b.ID())
	}
	if _, _, err := signing.NewKeyring(signing.KeyFileRing(nil)).Sign(t.Context(), signing.JWTHeader, "e30"); err == nil {
		t.Error("a ring without an active key signed")
	}
}

// TestKeyringSnapshots changes a ring while others read it (with -race), and checks that each
// snapshot is whole: the key that is active was never absent from the keys of the same moment or a
// later one.
func TestKeyringSnapshots(t *testing.T) {
	t.Parallel()
	a, b := private(t, testkeys.P256()), private(t, testkeys.P256Other())
	ring := signing.NewKeyring(signing.KeyFileRing(a))
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				active := ring.Ring().Active()
				if _, ok := ring.Keys().Lookup(active.ID()); !ok {
					t.Error("the active key does not verify")
					return
				}
			}
		})
	}
	for i := range 2000 {
		next := []*signing.PrivateKey{b, a}[i%2]
		ring.Set(signing.KeyFileRing(next))
		if !ring.Activate(next.ID()) {
			t.Error("the next key was lost")
		}
		ring.SetVerifyOnly([]signing.PublicKey{next.Public()})
	}
	cancel()
	readers.Wait()
	if got := len(ring.Keys().All()); got != 2 {
		t.Errorf("after many rotations between two keys the ring has %d keys", got)
	}
}
