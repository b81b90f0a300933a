// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/rotation"
	"sa-controller-manager/signing/testkeys"
)

// FuzzRead reads directories with any state, and with the same two files in turn for its keys. What is accepted must be a ring
// that signs, of the keys that the state names; what is refused must be refused as a whole and without a word of a key file.
func FuzzRead(f *testing.F) {
	d := newRing(f)
	publicHalf, err := EncodePublic(pair(f, testkeys.P384()).Public())
	must(f, err)
	seed := func() {
		state, err := os.ReadFile(d.statePath())
		must(f, err)
		f.Add(state, testkeys.RSA2048(), publicHalf)
		f.Add(state, testkeys.RSA2048(), testkeys.P256())
		f.Add(state, testkeys.P256(), publicHalf)
		f.Add(state[:len(state)-20], testkeys.RSA2048(), publicHalf)
		f.Add(bytes.ReplaceAll(state, []byte("RS256"), []byte("ES256")), testkeys.RSA2048(), publicHalf)
	}
	seed()
	update(f, d, pruneOf(p384ID))
	publish(f, d, testkeys.P256())
	seed()
	update(f, d, activate)
	seed()
	f.Fuzz(func(t *testing.T, state, first, second []byte) {
		b := bundle{State: state, Files: map[string][]byte{}}
		if decoded, err := rotation.Decode(state); err == nil {
			for i, key := range decoded.Keys {
				b.Files[key.File] = [][]byte{first, second}[i%2]
			}
		}
		data, err := json.Marshal(b)
		must(t, err)
		snapshot, err := parse(data)
		if err != nil {
			if snapshot != nil {
				t.Fatal("refused, and returned")
			}
			// The state is no key file, and may be quoted.
			if text := err.Error(); strings.Contains(text, "-----") && !bytes.Contains(state, []byte("-----")) || (len(first) > 100 && strings.Contains(text, string(first[40:90]))) {
				t.Fatalf("the error quotes a key file: %v", err)
			}
			return
		}
		checkSnapshot(t, snapshot)
	})
}

func checkSnapshot(t *testing.T, snapshot *Snapshot) {
	t.Helper()
	if snapshot.Active == nil || snapshot.Active.ID() != snapshot.State.Active().ID {
		t.Fatalf("%v signs, and the state names %s", snapshot.Active, snapshot.State.Active().ID)
	}
	if next, ok := snapshot.State.Next(); ok != (snapshot.Next != nil) || (ok && snapshot.Next.ID() != next.ID) {
		t.Fatalf("%v is next, and the state names %s", snapshot.Next, next.ID)
	}
	ring := signing.NewKeyring(nil)
	ring.Set(snapshot.Ring())
	if got, want := len(ring.Keys().All()), len(snapshot.State.Keys); got != want {
		t.Fatalf("%d keys verify, and the state names %d", got, want)
	}
	for _, key := range snapshot.State.Keys {
		if public, ok := ring.Keys().Lookup(key.ID); !ok || public.Algorithm != key.Algorithm {
			t.Fatalf("key %s does not verify, or with another algorithm", key.ID)
		}
	}
	if _, _, err := ring.Sign(t.Context(), signing.JWTHeader, "e30"); err != nil {
		t.Fatalf("the ring cannot sign: %v", err)
	}
}
