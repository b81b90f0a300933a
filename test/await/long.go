// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package await

import "testing"

// Long marks a test that takes more than ten seconds or so. make test skips it, make test-long runs
// it.
// A shorter test must cover parts of what it proves.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long; make test-long runs it")
	}
}
