// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"fmt"

	"sa-controller-manager/signing"
)

// Validate returns the first error of the state: of what a transition must never leave, and of a ring that was not changed
// by one, which its version shows.
func (s State) Validate() error {
	if s.SchemaVersion != SchemaVersion {
		return fmt.Errorf("schemaVersion is %d, want %d: use the release that wrote the state, or a later one", s.SchemaVersion,
			SchemaVersion)
	}
	ids, signers, roles := map[string]bool{}, map[string]bool{}, map[signing.Role]int{}
	for i, key := range s.Keys {
		if err := signing.CheckKeyID(key.ID); err != nil {
			return fmt.Errorf("keys[%d]: %w", i, err)
		}
		if ids[key.ID] {
			return fmt.Errorf("keys[%d]: key ID %q is there twice", i, key.ID)
		}
		if !key.PublicOnly && key.Signer != "" {
			if signers[key.Signer] {
				return fmt.Errorf("keys[%d]: %s is there twice: one signer is one key", i, key.Signer)
			}
			signers[key.Signer] = true
		}
		ids[key.ID] = true
		roles[key.Role]++
	}
	if roles[signing.Active] != 1 || roles[signing.Next] > 1 {
		return fmt.Errorf("keys: %d of them are active and %d are next, want exactly one and one at most",
			roles[signing.Active], roles[signing.Next])
	}
	if err := s.validateHalves(); err != nil {
		return err
	}
	for i, gone := range s.Removed {
		if ids[gone.ID] || signing.CheckKeyID(gone.ID) != nil || gone.Digest == "" {
			return fmt.Errorf("removed[%d]: %q is a key of the ring, no key ID, or without a digest", i, gone.ID)
		}
		if gone.Reason != Pruned && gone.Reason != Withdrawn {
			return fmt.Errorf("removed[%d]: reason %q is neither pruned nor withdrawn", i, gone.Reason)
		}
	}
	for i, gone := range s.Revoked {
		if !gone.Revokes() {
			return fmt.Errorf("revoked[%d]: %q is no key ID, without a digest, or not revoked", i, gone.ID)
		}
	}
	before := s
	before.History = s.History[:max(1, len(s.History))-1]
	if want := before.version(); want != s.Version() {
		return fmt.Errorf("history ends with version %q and the ring is version %q: was it edited by hand?", s.Version(), want)
	}
	return nil
}

// validateHalves checks that the ring can sign with the next key, the active and the previous one, and with no other.
func (s State) validateHalves() error {
	previous, ok := s.Key(s.Previous)
	if s.Previous != "" && (!ok || previous.Role != signing.Retired) {
		return fmt.Errorf("previous: %q is no retired key of the ring", s.Previous)
	}
	for i, key := range s.Keys {
		if half := key.Role == signing.Retired && key.ID != s.Previous; key.PublicOnly != half {
			return fmt.Errorf("keys[%d]: publicOnly is %t, want the private half of the previous key and of no other retired one",
				i, key.PublicOnly)
		}
	}
	return nil
}
