// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import "context"

// Guard is a Signer that signs nothing while its key must not be used.
type Guard struct {
	Signer

	// May is nil, or says why not. It must not block.
	May func() error
}

// BlockedError is why a Guard does not sign. It holds nothing of the payload.
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
