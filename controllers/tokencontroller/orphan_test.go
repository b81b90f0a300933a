// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
)

const (
	asksAccount = "get serviceaccounts app"
	deletesIt   = "delete secrets token [uid-token 20]"
)

func (w *world) runSecretLoop(t *testing.T) {
	t.Helper()
	testutil.Start(t, func(ctx context.Context) error { w.secretLoop.Run(ctx); return nil })
	w.secretLoop.Add(named("token"))
	synctest.Wait()
}

// TestOrphanGrace: a jump of the clock neither cuts the grace short nor lengthens it, and a change of the Secret
// begins it again.
func TestOrphanGrace(t *testing.T) {
	t.Parallel()
	testutil.EachJump(t, func(t *testing.T, jump time.Duration) {
		w := worldAt(t, time.Time{}, tokenSecret("token"))
		w.Cache(t, tokenSecret("token"))
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			testutil.Check(t, when, want, w.Actions(t))
		}
		w.runSecretLoop(t)
		expect("first sight", asksAccount)
		w.Config.Clock.(*testutil.JumpingClock).Jump(jump)
		w.secretLoop.Add(named("token"))
		expect("checked again after the jump")
		time.Sleep(testGrace / 2)
		changed := tokenSecret("token", atVersion("21"))
		w.Live(t, changed)
		w.Cache(t, changed)
		w.secretLoop.Add(named("token"))
		expect("changed", asksAccount)
		time.Sleep(testGrace - time.Nanosecond)
		expect("just before the end of the grace")
		time.Sleep(time.Nanosecond)
		expect("the grace is over", asksAccount, "delete secrets token [uid-token 21]")
	})
}
