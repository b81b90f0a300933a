// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import "sa-controller-manager/signing"

// Ring says what each key ID is for. A token of a key that the ring does not have is
// not re-issued: another replica may be ahead, or the key another cluster's.
type Ring = *signing.Ring

// isRetired reports whether a key ID is one that the store calls retired.
func isRetired(ring Ring, keyID string) bool { return ring.Role(keyID) == signing.Retired }

// keyState says what a token's key ID is in this ring, as a value of a metric's label.
func keyState(ring Ring, keyID string) string {
	if keyID == "" {
		return "none"
	}
	switch role := ring.Role(keyID); role {
	case "", signing.VerifyOnly: // the store does not have it
		return "unknown"
	default:
		return string(role)
	}
}
