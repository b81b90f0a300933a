// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// PatchOperation is one operation of a JSON patch (RFC 6902). Only those that add
// or replace exist here, because plugins append to lists and never rewrite one
// that they do not own.
type PatchOperation struct {
	Op    string          `json:"op"`   // "add" or "replace"
	Path  string          `json:"path"` // JSON pointer (RFC 6901)
	Value json.RawMessage `json:"value"`
}

// applyPatch returns object with operations applied. Fields that no operation names
// keep their value, also those that no type knows. Without operations it returns object itself, so
// that a lone mutator costs nothing.
func applyPatch(object []byte, operations []PatchOperation) ([]byte, error) {
	if len(operations) == 0 {
		return object, nil
	}
	encoded, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(encoded)
	if err != nil {
		return nil, err
	}
	return patch.Apply(object)
}
