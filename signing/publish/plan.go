// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sa-controller-manager/signing"
)

// mayReplace returns an error if the stored documents are those of another issuer or of a newer
// ring.
func (p *Publisher) mayReplace(ring *signing.Ring, jwks, discovery *Object) error {
	if err := p.sameIssuer(ring, jwks, discovery); p.TakeOver && err != nil {
		return nil //nolint:nilerr // the generations are those of different rings
	} else if err != nil {
		return fmt.Errorf("%w: \"keys publish --take-over\" replaces them", err)
	}
	if jwks == nil {
		return nil
	}
	ours := StampOf(ring)
	switch stored := jwks.Stamp; {
	case stored.Generation > ours.Generation:
		return fmt.Errorf("generation %d of the key ring is published, and this host has generation %d: copy the newer ring here with \"keys import\"",
			stored.Generation, ours.Generation)
	case stored.Generation != 0 && stored.Generation == ours.Generation && stored.Hash != ours.Hash:
		return fmt.Errorf("another key ring of the same generation %d is published: two hosts have changed their copies; see \"keys import --help\"", ours.Generation)
	}
	return nil
}

func (p *Publisher) sameIssuer(ring *signing.Ring, jwks, discovery *Object) error {
	if discovery == nil {
		// After an interrupted pass there may be only a JWKS, with keys of ours.
		if jwks != nil && !anyOurs(ring, jwks) {
			return errors.New("a JWKS with keys of another issuer is there")
		}
		return nil
	}
	var stored struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(discovery.Body, &stored); err != nil || stored.Issuer == "" {
		return errors.New("the file at " + signing.DiscoveryPath + " is no discovery document")
	}
	if stored.Issuer != p.Issuer {
		return fmt.Errorf("the documents of another issuer, %q, are there", stored.Issuer)
	}
	return nil
}

func anyOurs(ring *signing.Ring, jwks *Object) bool {
	published, err := signing.ParseJWKS(jwks.Body)
	return err == nil && slices.ContainsFunc(published, func(key signing.PublishedKey) bool { return was(ring, key.ID) })
}

// foreign returns the IDs of published keys that the ring never had.
func foreign(ring *signing.Ring, jwks *Object) []string {
	if jwks == nil {
		return nil
	}
	published, err := signing.ParseJWKS(jwks.Body)
	if err != nil {
		return nil // it is replaced, and nobody can verify with it
	}
	var ids []string
	for _, key := range published {
		if !was(ring, key.ID) {
			ids = append(ids, key.ID)
		}
	}
	return ids
}

// was reports whether the ring has a key, or had it before: a published older generation may have keys
// that were removed since.
func was(ring *signing.Ring, id string) bool {
	if _, has := ring.KeySet().Lookup(id); has {
		return true
	}
	past := ring.Past()
	return slices.Contains(past.Pruned, id) || slices.Contains(past.Withdrawn, id)
}
