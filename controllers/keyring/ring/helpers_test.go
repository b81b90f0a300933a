// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
)

var (
	epoch  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	policy = ring.Policy{CacheAge: time.Hour, TokenLifetime: 365 * 24 * time.Hour}
)

// newKey is the i-th key ever made. RSA and EC keys alternate.
func newKey(i int) ring.Key {
	algorithms := [2]string{"RS256", "ES256"}
	return ring.Key{Key: signing.PublicKey{ID: fmt.Sprintf("key-%d", i), Algorithm: algorithms[i%2]}.As(signing.Next)}
}

func revocations(ids ...string) (gone []ring.Removed) {
	for _, id := range ids {
		gone = append(gone, ring.Removed{ID: id, Digest: id, Reason: ring.Revoked})
	}
	return gone
}

func ids(state ring.State) []string {
	var all []string
	for _, key := range state.Keys {
		all = append(all, key.ID)
	}
	return all
}

func encode(t testing.TB, state ring.State) []byte {
	t.Helper()
	testutil.Must(t, state.Validate())
	return testutil.Get(json.Marshal(state))(t)
}

// decode is how a state is read, without its keys.
func decode(data []byte) (state ring.State, err error) {
	if err := json.Unmarshal(data, &state); err != nil {
		return state, err
	}
	return state, state.Validate()
}

// must unwraps a transition that must be made.
func must(t testing.TB) func(ring.State, error) ring.State {
	t.Helper()
	return func(state ring.State, err error) ring.State {
		t.Helper()
		testutil.Must(t, err)
		return state
	}
}
