// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	"sa-controller-manager/signing/rotation"
)

// Ring is what re-issue needs to know of the key ring: what each key ID is for. It is
// immutable.
type Ring struct {
	// Generation is that of the state; a lower one is older.
	Generation int64
	active     string
	roles      map[string]rotation.Role
}

// RingOf reads a valid state.
func RingOf(state rotation.State) Ring {
	roles := make(map[string]rotation.Role, len(state.Keys))
	for _, key := range state.Keys {
		roles[key.ID] = key.Role
	}
	return Ring{Generation: state.Generation, active: state.Active().ID, roles: roles}
}

// Active is the key ID of the key that signs.
func (r Ring) Active() string { return r.active }

// Retired tells whether a key ID is one that verifies only. One that the ring does not
// have is not: another replica may be ahead, or the key another cluster's.
func (r Ring) Retired(keyID string) bool { return r.roles[keyID] == rotation.Retired }

// Hash is the same for rings that have the same keys in the same roles, whatever their
// order and their history. It tells nothing of the keys.
func (r Ring) Hash() string {
	digest := sha256.New()
	for _, id := range slices.Sorted(maps.Keys(r.roles)) {
		fmt.Fprintf(digest, "%s %s\n", id, r.roles[id])
	}
	return base64.RawURLEncoding.EncodeToString(digest.Sum(nil))
}

// state says what a token's key ID is in this ring, as a value of a metric's label.
func (r Ring) state(keyID string) string {
	role, known := r.roles[keyID]
	switch {
	case keyID == "":
		return "none"
	case !known:
		return "unknown"
	}
	return string(role)
}
