// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/testutil"
)

// jumping makes the world go by a clock whose time of day can jump.
func (w *world) jumping() *testutil.JumpingClock {
	clock, config := testutil.NewJumpingClock(), w.Config
	w.Informers = informers.New(w.Client, 0)
	config.Clock, config.Informers = clock, w.Informers
	w.Controller = New(config)
	return clock
}

// TestOrphanGraceAcrossAJump: no Secret is deleted before its grace is over, and none stays
// for an hour more.
func TestOrphanGraceAcrossAJump(t *testing.T) {
	t.Parallel()
	testutil.EachJump(t, func(t *testing.T, jump time.Duration) {
		w := newWorld(t, tokenSecret("token"))
		clock := w.jumping()
		w.Cache(t, tokenSecret("token"))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.secretLoop.Run(ctx) }()
		defer func() { stop(); <-ended }()
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, w.actions(t)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}

		w.secretLoop.Add(named("token"))
		expect("first sight", "get serviceaccounts app")
		clock.Jump(jump)
		w.secretLoop.Add(named("token"))
		expect("looked at again after the jump")
		time.Sleep(testGrace - time.Nanosecond)
		expect("just before the end of the grace")
		time.Sleep(time.Nanosecond)
		expect("the grace is over", "get serviceaccounts app", "delete secrets token [uid-token 20]")
	})
}
