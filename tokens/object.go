// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"cmp"
	"encoding/json"
	"errors"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var errNoObject = errors.New("no JSON object with one member of each name")

// object is a JSON object whose members are still encoded.
type object map[string]json.RawMessage

// parseObject reads exactly one JSON object. encoding/json would take the last of two members of the
// same name and, into a struct, members whose case differs; go-jose, with which kube-apiserver reads
// tokens, does neither. So that a token has one meaning for all readers, duplicates are refused and
// names are compared exactly.
func parseObject(data []byte) (object, bool) {
	members := object{}
	return members, decode(data, &members) == nil
}

// UnmarshalJSONFrom is json.UnmarshalerFrom's. Duplicates inside of a member matter to those who read
// it.
func (o *object) UnmarshalJSONFrom(decoder *jsontext.Decoder) error {
	if start, err := decoder.ReadToken(); err != nil || start.Kind() != '{' {
		return cmp.Or(err, errNoObject)
	}
	for decoder.PeekKind() == '"' {
		token, err := decoder.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		value, err := decoder.ReadValue()
		if _, duplicate := (*o)[name]; duplicate || err != nil {
			return cmp.Or(err, errNoObject)
		}
		(*o)[name] = json.RawMessage(value.Clone())
	}
	_, err := decoder.ReadToken()
	return err
}

// text returns a member that is a string.
func text(of object, name string) (value string, ok bool) {
	raw := of[name]
	return value, quoted(raw) && decode(raw, &value) == nil
}

func decode(data []byte, into any) error {
	return jsonv2.Unmarshal(data, into, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}
