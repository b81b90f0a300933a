// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package await

import "testing"

// Long marks a test that takes more than some ten seconds, because it waits for what takes
// that long or starts many processes. make test leaves it out, make test-long does not.
// What it proves has to be seen in parts by a shorter one.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long; make test-long runs it")
	}
}
