// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"fmt"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// The keys of the tests. Others are what the ring does not have.
func newPEM() []byte     { return testkeys.P256() }
func oldPEM() []byte     { return testkeys.P256Other() }
func strangePEM() []byte { return testkeys.P384() }

// ringOf is a ring with an active and a retired key.
func ringOf(t *testing.T, generation int64, active, retired []byte) *signing.Ring {
	t.Helper()
	return signing.NewRing(generation, testkeys.Parse(active).As(signing.Active),
		testkeys.Parse(retired).Public().As(signing.Retired)).WithPast(past("main", generation))
}

// past is that of a ring that was changed on one branch only.
func past(branch string, generation int64) signing.Past {
	var past signing.Past
	for n := range generation {
		past.History = append(past.History, fmt.Sprintf("%d:%s", n+1, branch))
	}
	return past
}
