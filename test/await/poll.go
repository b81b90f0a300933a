// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package await

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// pollInterval is much shorter than the usual wait, and long enough to leave the processor to the
// processes under test.
const pollInterval = 50 * time.Millisecond

// Poll calls ask until it returns nil. Use it where there is no watch, such as for a metric or a
// file. After the end of ctx it returns the last error from before.
func Poll(ctx context.Context, ask func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error // not the error that the end of ctx causes
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

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

// Long marks a test that takes more than ten seconds or so. make test skips it, make test-long runs
// it.
// A shorter test must cover parts of what it proves.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long; make test-long runs it")
	}
}
