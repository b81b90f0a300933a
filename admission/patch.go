// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import "encoding/json"

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
