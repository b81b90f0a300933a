// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"encoding/json"
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"
)

// maxSize bounds what is decoded: a thousand keys have less.
const maxSize = 1 << 20

// Encode renders a valid state for people to read: one member a line, a final newline.
func Encode(state State) ([]byte, error) {
	if err := state.Validate(); err != nil {
		return nil, fmt.Errorf("encode the key ring's state: %w", err)
	}
	data, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the key ring's state: %w", err)
	}
	return append(data, '\n'), nil
}

// Decode reads what Encode wrote. Everything that it does not know is an error: a member in it may be the one that matters. A
// newer schema version is said first, because its unknown members are to be expected.
func Decode(data []byte) (State, error) {
	if len(data) > maxSize {
		return State{}, fmt.Errorf("the state has %d bytes, want %d at most", len(data), maxSize)
	}
	var version struct {
		SchemaVersion int `json:"schemaVersion"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &version); err != nil {
		return State{}, fmt.Errorf("the state is not JSON: %w", err)
	}
	if version.SchemaVersion > SchemaVersion {
		return State{}, State{SchemaVersion: version.SchemaVersion}.validateHeader()
	}
	var state State
	unknown, err := kjson.UnmarshalStrict(data, &state)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return State{}, fmt.Errorf("the state is not as this program writes it: %w", err)
	}
	if err := state.Validate(); err != nil {
		return State{}, err
	}
	return state, nil
}
