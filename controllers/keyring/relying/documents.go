// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package relying

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sa-controller-manager/signing"
)

// Documents are the discovery document and the JWKS of one issuer.
type Documents struct {
	// Issuer is an https URL.
	Issuer string
	// Replace has the documents of another issuer replaced.
	Replace bool
	// DryRun has none written.
	DryRun bool
}

// Publish writes the keys of ring to the directory, and returns the paths of the documents that it has
// written, also if there is an error. It writes what differs: the JWKS first, because the discovery document
// leads to it.
func (d *Documents) Publish(to Directory, ring *signing.Ring) (wrote []string, err error) {
	keys := ring.KeySet().All()
	jwks, jwksErr := signing.MarshalJWKS(keys)
	discovery, err := signing.MarshalDiscovery(d.Issuer, keys)
	if err := errors.Join(jwksErr, err); err != nil {
		return nil, err
	}
	root, err := to.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	oldJWKS, jwksErr := read(root, signing.JWKSPath)
	oldDiscovery, err := read(root, signing.DiscoveryPath)
	if err := errors.Join(jwksErr, err); err != nil {
		return nil, err
	}
	if err := d.mayReplace(ring, oldJWKS, oldDiscovery); err != nil && !d.Replace {
		return nil, fmt.Errorf("%w: \"keys publish --replace\" replaces them", err)
	}
	for _, document := range []struct {
		path      string
		old, body []byte
	}{{signing.JWKSPath, oldJWKS, jwks}, {signing.DiscoveryPath, oldDiscovery, discovery}} {
		if bytes.Equal(document.old, document.body) {
			continue // so that its age stays
		}
		if !d.DryRun {
			if err := write(root, document.path, document.body); err != nil {
				return wrote, err
			}
		}
		wrote = append(wrote, document.path)
	}
	return wrote, nil
}

// mayReplace returns an error if the stored documents, nil if absent, are those of another issuer.
func (d *Documents) mayReplace(ring *signing.Ring, jwks, discovery []byte) error {
	if discovery == nil {
		// After an interrupted pass there may be only a JWKS, with keys of ours.
		published, err := signing.ParseJWKS(jwks)
		if jwks != nil && (err != nil ||
			!slices.ContainsFunc(published, func(key signing.PublicKey) bool { return ring.Role(key.ID) != "" })) {
			return errors.New("a JWKS with keys of another issuer is there")
		}
		return nil
	}
	var stored struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(discovery, &stored); err != nil || stored.Issuer == "" {
		return errors.New("the file at " + signing.DiscoveryPath + " is no discovery document")
	}
	if stored.Issuer != d.Issuer {
		return fmt.Errorf("the documents of another issuer, %.100q, are there", stored.Issuer)
	}
	return nil
}
