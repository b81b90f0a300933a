// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package await

import (
	"testing"
	"time"
)

// loadFactor is how much longer things may take in make test, where several packages share the
// machine. It still finds a wait for a timer of minutes.
const loadFactor = 5

// Within fails the test if something took longer than limit, the promise on an idle machine.
// make test-long checks the limit itself, make test a multiple of it.
func Within(t testing.TB, what string, took, limit time.Duration) {
	t.Helper()
	if testing.Short() {
		limit *= loadFactor
	}
	if took > limit {
		t.Errorf("%s took %v, want %v at most", what, took, limit)
	}
}
