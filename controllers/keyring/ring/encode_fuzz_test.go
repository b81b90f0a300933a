// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"bytes"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// FuzzRead reads any content. What is accepted must be a ring that signs, of the keys that the file
// names, and read again as it was; what is refused must be refused without a word of a PEM.
func FuzzRead(f *testing.F) {
	ring := newRing(f)
	seed := func() {
		data := bytesOf(f, ring)
		f.Add(data)
		f.Add(data[:len(data)-20])
		f.Add(bytes.ReplaceAll(data, []byte("RS256"), []byte("ES256")))
		f.Add(bytes.ReplaceAll(data, []byte("retired"), []byte("active")))
		f.Add(bytes.ReplaceAll(data, []byte("publicOnly"), []byte("x")))
	}
	seed()
	for _, next := range []transition{pruneOf(p384ID), publish(testkeys.Parse(testkeys.P256())), rotate, rollback, revokeOf(p256ID)} {
		update(f, ring, next)
		seed()
	}
	secret := string(testkeys.Parse(testkeys.P256()).PEM()[60:100])
	f.Fuzz(func(t *testing.T, data []byte) {
		state, err := decode(data, nil)
		if err != nil {
			testutil.Require(t, !strings.Contains(err.Error(), secret), "the error quotes a key: %v", err)
			return
		}
		// What is written need not be what was read, such as 12:00+00:00 for 12:00Z; what is read
		// then must be.
		once := testutil.Get(encode(state))(t)
		again := testutil.Get(decode(once, nil))(t)
		if twice, err := encode(again); err != nil || !bytes.Equal(once, twice) || again.Version() != state.Version() {
			t.Fatalf("reads otherwise than it was written:\n%s", once)
		}
		keyring := signing.NewKeyring(state.Ring())
		got, want := len(keyring.Keys().All()), len(state.Keys)
		testutil.Require(t, got == want, "%d keys verify, and the file names %d", got, want)
		for _, key := range state.Keys {
			if public, ok := keyring.Keys().Lookup(key.ID); !ok || public.Algorithm != key.Algorithm ||
				keyring.Ring().Role(key.ID) != key.Role {
				t.Fatalf("%s key %s does not verify, or with another algorithm or role", key.Role, key.ID)
			}
			testutil.Require(t, (key.Private == nil) == key.PublicOnly, "%s key %s is public only: %t, with the private half %v", key.Role,
				key.ID,
				key.PublicOnly, key.Private)
		}
		if _, _, err := keyring.Sign(t.Context(), signing.JWTHeader, "e30"); err != nil {
			t.Fatalf("the ring cannot sign: %v", err)
		}
	})
}
