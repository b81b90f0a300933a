// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

var errBoom = errors.New("boom")

// running is a Runner under Run, and how to end it.
type running struct {
	*Runner[string]
	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned
}

// run starts a Runner. It belongs into a synctest bubble, which fails the test if Run leaves
// anything behind.
func run(ctx context.Context, config Config[string]) *running {
	if config.Name == "" {
		config.Name = "test"
	}
	config.Workers = max(config.Workers, 1)
	ctx, cancel := context.WithCancel(ctx)
	r := &running{Runner: New(config), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.Run(ctx)
	}()
	return r
}

func (r *running) stop() {
	r.cancel()
	<-r.ended
}

// hasEnded reports whether Run has returned by now.
func (r *running) hasEnded() bool {
	synctest.Wait()
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}
