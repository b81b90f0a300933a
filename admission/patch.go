// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// PatchOperation is one operation of a JSON patch (RFC 6902). Only "add" and "replace" are used,
// because plugins append to lists and never rewrite a list that they do not own.
type PatchOperation struct {
	Op    string          `json:"op"`   // "add" or "replace"
	Path  string          `json:"path"` // JSON pointer (RFC 6901)
	Value json.RawMessage `json:"value"`
}

// encodePatch encodes operations as a JSON patch, with the fields in the order of the struct.
// Values are copied unchanged once they are known to be JSON.
func encodePatch(operations []PatchOperation) ([]byte, error) {
	size := 2
	for _, operation := range operations {
		size += len(`{"op":"","path":"","value":},`) + len(operation.Op) + len(operation.Path) + len(operation.Value)
	}
	patch := append(make([]byte, 0, size), '[')
	for i, operation := range operations {
		if !jsontext.Value(operation.Value).IsValid() {
			return nil, fmt.Errorf("the value for %s is not JSON", operation.Path)
		}
		if i > 0 {
			patch = append(patch, ',')
		}
		patch = append(patch, `{"op":`...)
		patch, _ = jsontext.AppendQuote(patch, operation.Op) // an error means invalid UTF-8, which it has replaced
		patch = append(patch, `,"path":`...)
		patch, _ = jsontext.AppendQuote(patch, operation.Path)
		patch = append(patch, `,"value":`...)
		patch = append(append(patch, operation.Value...), '}')
	}
	return append(patch, ']'), nil
}

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
