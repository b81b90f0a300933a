// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rotation_test

import (
	"fmt"
	"testing"
	"time"

	"sa-controller-manager/signing/rotation"
)

var (
	epoch  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	policy = rotation.Policy{CacheAge: time.Hour, HoldDown: 24 * time.Hour, TokenLifetime: 365 * 24 * time.Hour}
)

// newKey is the i-th key ever made. RSA and EC keys take turns.
func newKey(i int) rotation.Key {
	algorithm := "RS256"
	if i%2 == 1 {
		algorithm = "ES256"
	}
	return rotation.Key{ID: fmt.Sprintf("key-%d", i), Algorithm: algorithm, File: fmt.Sprintf("key-%d.pem", i)}
}

func ids(state rotation.State) []string {
	var all []string
	for _, key := range state.Keys {
		all = append(all, key.ID)
	}
	return all
}

func encode(t *testing.T, state rotation.State) []byte {
	t.Helper()
	data, err := rotation.Encode(state)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// must unwraps a transition that must be made.
func must(t *testing.T) func(rotation.State, error) rotation.State {
	t.Helper()
	return func(state rotation.State, err error) rotation.State {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
}
