// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sa-controller-manager/signing"
)

// algorithms are the JWS algorithms a key may have (package signing, AlgorithmFor).
var algorithms = map[string]bool{"RS256": true, "ES256": true, "ES384": true, "ES512": true}

// Validate returns the first error of the state.
func (s State) Validate() error {
	if err := s.validateHeader(); err != nil {
		return err
	}
	ids, signers, roles := map[string]bool{}, map[string]bool{}, map[signing.Role]int{}
	for i, key := range s.Keys {
		if err := key.validate(); err != nil {
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
	if roles[signing.Active] != 1 {
		return fmt.Errorf("keys: %d of them are active, want exactly one", roles[signing.Active])
	}
	if roles[signing.Next] > 1 {
		return fmt.Errorf("keys: %d of them are next, want one at most", roles[signing.Next])
	}
	for _, id := range slices.Concat(s.Pruned, s.Withdrawn) {
		if ids[id] || signing.CheckKeyID(id) != nil {
			return fmt.Errorf("pruned, withdrawn: %q is a key of the ring, or no key ID", id)
		}
	}
	if err := s.validateRotation(); err != nil {
		return err
	}
	if err := s.validateManual(); err != nil {
		return err
	}
	return s.validateHistory()
}

func (s State) validateHeader() error {
	if s.SchemaVersion > SchemaVersion {
		return fmt.Errorf("schemaVersion is %d and this release knows %d at most: use the release that wrote the state, or a later one",
			s.SchemaVersion, SchemaVersion)
	}
	if s.SchemaVersion < 1 {
		return fmt.Errorf("schemaVersion is %d, want %d", s.SchemaVersion, SchemaVersion)
	}
	if s.Generation < 1 {
		return fmt.Errorf("generation is %d, want 1 or more", s.Generation)
	}
	return nil
}

func (k Key) validate() error {
	if err := k.validateID(); err != nil {
		return err
	}
	if !algorithms[k.Algorithm] {
		return fmt.Errorf("algorithm %q is none of RS256, ES256, ES384, ES512", k.Algorithm)
	}
	if k.PublishedAt.IsZero() {
		return errors.New("publishedAt is missing")
	}
	if k.PublicOnly && k.Role != signing.Retired {
		return fmt.Errorf("a key that is %s must be able to sign, and this one is publicOnly", k.Role)
	}
	return k.validateRole()
}

func (k Key) validateID() error {
	if k.Signer != "" {
		if _, err := signing.ParseSigner(k.Signer); err != nil {
			return fmt.Errorf("signer: %w", err)
		}
		return signing.CheckKeyID(k.ID)
	}
	if k.ID == "" || strings.ContainsFunc(k.ID, notKeyID) {
		return fmt.Errorf("key ID %q is not base64url", k.ID)
	}
	return nil
}

func (k Key) validateRole() error {
	switch k.Role {
	case signing.Next:
		if !k.ActivatedAt.IsZero() || !k.RetiredAt.IsZero() {
			return errors.New("the next key has activatedAt or retiredAt, and it has never signed")
		}
	case signing.Active:
		if k.ActivatedAt.IsZero() || !k.RetiredAt.IsZero() {
			return errors.New("the active key must have activatedAt and no retiredAt")
		}
	case signing.Retired:
		if k.RetiredAt.IsZero() {
			return errors.New("a retired key must have retiredAt")
		}
	default:
		return fmt.Errorf("role %q is none of next, active, retired", k.Role)
	}
	return nil
}

func notKeyID(r rune) bool {
	return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// validateRotation checks that the rotation fits the keys.
func (s State) validateRotation() error {
	next, hasNext := s.Next()
	if s.Rotation == nil {
		if hasNext {
			return fmt.Errorf("key %q is next and no rotation is in progress", next.ID)
		}
		return nil
	}
	r := s.Rotation
	if r.From == r.To || r.StartedAt.IsZero() {
		return errors.New("rotation: want two different keys and startedAt")
	}
	if hasNext != (r.Phase == Published) {
		return fmt.Errorf("rotation: phase %q and a next key do not go together", r.Phase)
	}
	switch active := s.Active().ID; {
	case r.Phase == Published && (active != r.From || next.ID != r.To):
		return errors.New("rotation: it is not from the active to the next key")
	case (r.Phase == Activated || r.Phase == Completed) && active != r.To:
		return errors.New("rotation: its new key is not the active one")
	case r.Phase == RolledBack && active != r.From:
		return errors.New("rotation: it was rolled back, and its previous key is not the active one")
	}
	return s.validatePrevious()
}

// validatePrevious checks that the ring has the key to which Rollback would go back.
func (s State) validatePrevious() error {
	r := s.Rotation
	switch r.Phase {
	case Published, RolledBack:
	case Activated, Completed:
		previous, ok := s.Key(r.From)
		if r.Phase == Activated && !ok {
			return errors.New("rotation: the previous key is gone before it was completed")
		}
		if ok && previous.PublicOnly {
			return errors.New("rotation: the previous key is publicOnly")
		}
	default:
		return fmt.Errorf("rotation: phase %q is none of published, activated, completed, rolled-back", r.Phase)
	}
	return nil
}
