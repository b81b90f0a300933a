// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import "context"

// Guard is a Signer that refuses to sign while its key must not be used.
type Guard struct {
	Signer

	// May returns nil, or the reason why the key must not be used. It must not block.
	May func() error
}

// BlockedError is returned by a Guard that refuses to sign. It contains nothing of the payload.
type BlockedError struct{ Reason error }

func (e *BlockedError) Error() string { return "the active key must not sign: " + e.Reason.Error() }

func (e *BlockedError) Unwrap() error { return e.Reason }

// Sign implements Signer.
func (g Guard) Sign(ctx context.Context, style HeaderStyle, payload string) (header, signature string, err error) {
	if err := g.May(); err != nil {
		return "", "", &BlockedError{err}
	}
	return g.Signer.Sign(ctx, style, payload)
}
