// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"errors"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// TestGuard: each check can keep the key from signing, also one that is added while the guard is in use.
func TestGuard(t *testing.T) {
	t.Parallel()
	guard := &signing.Guard{Signer: testkeys.Parse(testkeys.P256())}
	sign := func() error {
		_, _, err := guard.Sign(t.Context(), signing.LegacyHeader, "payload")
		return err
	}
	testutil.Must(t, sign())
	reasons := []error{errors.New("refused"), errors.New("pruned")}
	now := make([]error, len(reasons))
	for i, reason := range reasons {
		guard.Add(func() error { return now[i] })
		now[i] = reason
		blocked, ok := errors.AsType[*signing.BlockedError](sign())
		if !ok || !errors.Is(blocked, reason) || !errors.Is(guard.May(), reason) {
			t.Errorf("%v, want it blocked because of %q", blocked, reason)
		}
		now[i] = nil
		testutil.Must(t, sign())
	}
}
