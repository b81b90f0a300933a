// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
)

// TestNextKeyWaitsForPreviousKept: with the external signer, the tokens of the previous
// key would be dead after a restart.
func TestNextKeyWaitsForPreviousKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := knowing(testKeys().old, testKeys().next)
		var kept atomic.Bool
		a := start(t, server, func(c *Config) { c.Kept = func(string) bool { return kept.Load() } })
		a.give(a.next)
		time.Sleep(time.Hour)
		testutil.Check(t, "key that signs while no file has the previous one", "OLD", a.signs())
		testutil.Check(t, "Events", []string{
			`sa-controller-manager: Warning SigningKeyWaits: key "NEXT" does not sign yet: key OLD, which signs, is in no verification file: ` +
				"give it with --service-account-key-file first, or use --service-account-key-ring",
		}, a.told())
		kept.Store(true)
		time.Sleep(maxBackoff)
		synctest.Wait()
		testutil.Check(t, "key that signs once a file has the previous one", "NEXT", a.signs())
	})
}
