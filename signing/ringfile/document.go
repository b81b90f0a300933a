// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ringfile

import (
	"encoding/json"
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/rotation"
)

// maxSize bounds the content of a file, as package reload does: a ring has a few keys, of at most 4
// KiB each.
const maxSize = 1 << 20

// document is the content of the file: the state, and the PEM of each key. If another process has the
// private half, the PEM is the pinned public half.
type document struct {
	rotation.State

	Keys []entry `json:"keys"`
}

type entry struct {
	rotation.Key

	PEM string `json:"pem"`
}

// encode renders a valid state as indented JSON with a final newline.
func encode(state rotation.State) ([]byte, error) {
	if err := state.Validate(); err != nil {
		return nil, fmt.Errorf("encode the key ring: %w", err)
	}
	content := document{State: state}
	for _, key := range state.Keys {
		if key.Pair == nil {
			return nil, fmt.Errorf("encode the key ring: %s key %s has no PEM", key.Role, key.ID)
		}
		content.Keys = append(content.Keys, entry{Key: key, PEM: string(key.Pair.PEM())})
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
func decode(data []byte, sign signing.RemoteSign) (rotation.State, error) {
	var version struct {
		SchemaVersion int `json:"schemaVersion"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &version); err != nil {
		return rotation.State{}, fmt.Errorf("the key ring is not JSON: %w", err)
	}
	if version.SchemaVersion > rotation.SchemaVersion {
		return rotation.State{}, rotation.State{SchemaVersion: version.SchemaVersion}.Validate()
	}
	var content document
	unknown, err := kjson.UnmarshalStrict(data, &content)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return rotation.State{}, fmt.Errorf("the key ring is not as this program writes it: %w", err)
	}
	state := content.State
	for _, entry := range content.Keys {
		state.Keys = append(state.Keys, entry.Key)
	}
	if err := state.Validate(); err != nil {
		return rotation.State{}, err
	}
	for i, key := range state.Keys {
		if state.Keys[i].Pair, err = parsePEM(key, []byte(content.Keys[i].PEM), sign); err != nil {
			return rotation.State{}, fmt.Errorf("pem of %s key %s: %w", key.Role, key.ID, err)
		}
	}
	return state, nil
}

// parsePEM parses the key of an entry. It parses the private half of a retired key too, because a
// rollback needs it.
func parsePEM(key rotation.Key, data []byte, sign signing.RemoteSign) (pair *signing.KeyPair, err error) {
	switch {
	case key.Signer != "":
		pair, err = parsePinned(key, data, sign)
	case key.PublicOnly:
		pair, err = parsePublicHalf(data)
	default:
		pair, err = signing.ParseKeyPair(data)
	}
	if err != nil {
		return nil, err
	}
	if public := pair.Public(); public.ID != key.ID || public.Algorithm != key.Algorithm {
		return nil, fmt.Errorf("it is another key: %s (%s)", public.ID, public.Algorithm)
	}
	return pair, nil
}

// parsePinned parses a public half. The signer may have chosen the key ID.
func parsePinned(key rotation.Key, data []byte, sign signing.RemoteSign) (*signing.KeyPair, error) {
	half, err := parsePublicHalf(data)
	if err != nil {
		return nil, err
	}
	public := half.Public()
	public.ID = key.ID
	if key.PublicOnly {
		return signing.PublicHalf(public)
	}
	name, err := signing.ParseSigner(key.Signer)
	if err != nil {
		return nil, err
	}
	return signing.RemoteKeyPair(name, public, sign)
}

func parsePublicHalf(data []byte) (*signing.KeyPair, error) {
	keys, err := signing.ParsePublicKeys(data)
	if err != nil {
		return nil, err
	}
	if len(keys) != 1 {
		return nil, fmt.Errorf("it holds %d keys, want one", len(keys))
	}
	return signing.PublicHalf(keys[0])
}
