// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"context"
	"sync"
)

// Guard is a Signer that refuses to sign while its key must not be used. It is the home of the rule
// whether a key may sign: each part that knows a reason against it adds a check here.
// It is safe for concurrent use, also while checks are added.
type Guard struct {
	Signer

	mu     sync.RWMutex
	checks []func() error
}

// Add adds a check, which returns nil or the reason why the key must not be used. It must not block.
func (g *Guard) Add(check func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.checks = append(g.checks, check)
}

// May returns nil, or the first reason why the key must not be used. It does not block.
func (g *Guard) May() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, check := range g.checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// BlockedError is returned by a Guard that refuses to sign. It contains nothing of the payload.
type BlockedError struct{ Reason error }

func (e *BlockedError) Error() string { return "the active key must not sign: " + e.Reason.Error() }

func (e *BlockedError) Unwrap() error { return e.Reason }

// Sign implements Signer.
func (g *Guard) Sign(ctx context.Context, style HeaderStyle, payload string) (header, signature string, err error) {
	if err := g.May(); err != nil {
		return "", "", &BlockedError{err}
	}
	return g.Signer.Sign(ctx, style, payload)
}
