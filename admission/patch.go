// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// PatchOperation is one operation of a JSON patch (RFC 6902). Only "add" and "replace" are used,
// because plugins append to lists and never rewrite a list that they do not own.
type PatchOperation struct {
	Op    string          `json:"op"`   // "add" or "replace"
	Path  string          `json:"path"` // JSON pointer (RFC 6901)
	Value json.RawMessage `json:"value"`
}

// encodePatch encodes operations as a JSON patch, with the fields in the order of the struct. It returns an
// error if a value is not JSON.
func encodePatch(operations []PatchOperation) ([]byte, error) { return json.Marshal(operations) }

// applyPatch returns object with operations applied. All other fields keep their value, even
// unknown ones. Without operations it returns object itself, so that a single mutator costs
// nothing.
func applyPatch(object []byte, operations []PatchOperation) ([]byte, error) {
	if len(operations) == 0 {
		return object, nil
	}
	encoded, err := encodePatch(operations)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(encoded)
	if err != nil {
		return nil, err
	}
	return patch.Apply(object)
}
