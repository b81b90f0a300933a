// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"fmt"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// The keys of the tests. Others are what the ring does not have.
func newPEM() []byte     { return testkeys.P256() }
func oldPEM() []byte     { return testkeys.P256Other() }
func strangePEM() []byte { return testkeys.P384() }

// ringOf is a ring with an active and a retired key that was changed on one branch only.
func ringOf(generation int64, active, retired []byte) ring.State {
	return stateOf("main", generation, testkeys.Parse(active).As(signing.Active), testkeys.Parse(retired).Public().As(signing.Retired))
}

// stateOf is a ring that was changed on this branch only.
func stateOf(branch string, generation int64, keys ...signing.Key) ring.State {
	state := ring.State{Generation: generation}
	for n := range generation {
		state.History = append(state.History, fmt.Sprintf("%d:%s", n+1, branch))
	}
	for _, key := range keys {
		state.Keys = append(state.Keys, ring.Key{Key: key})
	}
	return state
}
