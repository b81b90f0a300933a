// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	kjson "sigs.k8s.io/json"

	"sa-controller-manager/signing"
)

// maxSize bounds the content of a file, as package reload does: a ring has a few keys, of at most 4
// KiB each.
const maxSize = 1 << 20

// document is a ring file.
type document struct {
	State

	PEM map[string]string `json:"pem"`
}

// encode renders a valid state as indented JSON with a final newline: its members, and "pem" with each
// key by its ID. Nothing but "pem" is secret.
func encode(state State) ([]byte, error) {
	if err := state.Validate(); err != nil {
		return nil, fmt.Errorf("encode the key ring: %w", err)
	}
	content := document{state, map[string]string{}}
	for _, key := range state.Keys {
		// The PEM is the pinned public half if another process has the private one.
		encoded, err := signing.EncodePublicKeys(key.PublicKey)
		if err != nil {
			return nil, fmt.Errorf("encode the key ring: %w", err)
		}
		if key.Private != nil && key.Signer == "" {
			encoded = key.Private.PEM()
		}
		content.PEM[key.ID] = string(encoded)
	}
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the key ring: %w", err)
	}
	if len(data) >= maxSize {
		return nil, fmt.Errorf("encode the key ring: it has %d bytes, want less than %d", len(data), maxSize)
	}
	return append(data, '\n'), nil
}

// decode parses the output of encode. An unknown member is an error, because it may be the one that
// matters. A newer schema version is reported first, because its unknown members are expected.
func decode(data []byte, sign signing.RemoteSign) (State, error) {
	var version struct {
		SchemaVersion int `json:"schemaVersion"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &version); err != nil {
		return State{}, fmt.Errorf("the key ring is not JSON: %w", err)
	}
	if version.SchemaVersion != SchemaVersion {
		return State{}, State{SchemaVersion: version.SchemaVersion}.Validate()
	}
	var content document
	unknown, err := kjson.UnmarshalStrict(data, &content)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return State{}, fmt.Errorf("the key ring is not as this program writes it: %w", err)
	}
	if err := content.Validate(); err != nil {
		return State{}, err
	}
	for i := range content.Keys {
		key := &content.Keys[i]
		if err := parsePEM(key, []byte(content.PEM[key.ID]), sign); err != nil {
			return State{}, fmt.Errorf("pem of %s key %s: %w", key.Role, key.ID, err)
		}
		delete(content.PEM, key.ID)
	}
	if len(content.PEM) > 0 {
		return State{}, fmt.Errorf("pem: %d entries are of no key of the ring", len(content.PEM))
	}
	for _, gone := range content.Removed {
		if i := slices.IndexFunc(content.Keys, func(key Key) bool { return gone.Is(key.PublicKey) }); i >= 0 {
			return State{}, fmt.Errorf("keys[%d]: the key was %s", i, gone.Reason)
		}
	}
	return content.State, nil
}

// parsePEM sets the halves of a key that the ring has. Another process may have the private half, and may
// have chosen the key ID.
func parsePEM(key *Key, data []byte, sign signing.RemoteSign) error {
	var public signing.PublicKey
	if key.PublicOnly || key.Signer != "" {
		keys, err := signing.ParsePublicKeys(data)
		if err != nil {
			return err
		}
		if len(keys) != 1 {
			return fmt.Errorf("it holds %d keys, want one", len(keys))
		}
		public = keys[0]
	} else {
		var err error
		if key.Private, err = signing.ParsePrivateKey(data); err != nil {
			return err
		}
		public = key.Private.Public()
	}
	if key.Signer != "" {
		public.ID = key.ID
	}
	if public.ID != key.ID || public.Algorithm != key.Algorithm {
		return fmt.Errorf("it is another key: %s (%s)", public.ID, public.Algorithm)
	}
	key.PublicKey = public
	if key.Signer != "" && !key.PublicOnly {
		name, err := signing.ParseSigner(key.Signer)
		if err != nil {
			return err
		}
		key.Private = signing.RemoteKey(name, public, sign)
	}
	return nil
}
