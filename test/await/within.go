// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package await

import (
	"testing"
	"time"
)

// crowd is how much longer things may take in make test, where three parts of the suite
// share the machine. It is short enough to tell what is slow from what waits for a timer
// of minutes.
const crowd = 5

// Within is an error of the test if what took longer than limit, which is the promise on a
// machine that has time for it. make test-long holds it to that.
func Within(t testing.TB, what string, took, limit time.Duration) {
	t.Helper()
	if testing.Short() {
		limit *= crowd
	}
	if took > limit {
		t.Errorf("%s took %v, want %v at most", what, took, limit)
	}
}
