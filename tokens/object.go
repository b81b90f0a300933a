// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"
	"encoding/json"
)

// object is a JSON object whose members are still encoded.
type object map[string]json.RawMessage

// parseObject reads exactly one JSON object. encoding/json would take the last of two members of the
// same name and, into a struct, members whose case differs; go-jose, with which kube-apiserver reads
// tokens, does neither. So that a token has one meaning for all readers, duplicates are refused and
// names are compared exactly.
func parseObject(data []byte) (object, bool) {
	if !json.Valid(data) { // the decoder below finds fewer errors
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return nil, false
	}
	members := object{}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, false
		}
		name, ok := key.(string)
		if !ok {
			return nil, false
		}
		var value json.RawMessage
		if _, duplicate := members[name]; duplicate || decoder.Decode(&value) != nil {
			return nil, false
		}
		members[name] = value
	}
	return members, true
}
