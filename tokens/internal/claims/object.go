// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claims reads the segments and the claims of a token in the one way that all readers share.
// It is the home of the rule that a token has one meaning: one spelling of each segment, each member
// once, names compared exactly.
package claims

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var errNoObject = errors.New("no JSON object with one member of each name")

// Object is a JSON object whose members are still encoded.
type Object map[string]json.RawMessage //nolint:recvcheck // only decoding changes it

// Parse reads exactly one JSON object. encoding/json would take the last of two members of the
// same name and, into a struct, members whose case differs; go-jose, with which kube-apiserver reads
// tokens, does neither. So that a token has one meaning for all readers, duplicates are refused and
// names are compared exactly.
func Parse(data []byte) (Object, bool) {
	members := Object{}
	return members, decode(data, &members) == nil
}

// UnmarshalJSONFrom is json.UnmarshalerFrom's. Duplicates inside of a member matter to those who read
// it.
func (o *Object) UnmarshalJSONFrom(decoder *jsontext.Decoder) error {
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

// Text returns a member that is a string.
func (o Object) Text(name string) (value string, ok bool) {
	raw := o[name]
	return value, Quoted(raw) && decode(raw, &value) == nil
}

// Quoted reports whether raw is a string. encoding/json reads null into anything.
func Quoted(raw json.RawMessage) bool { return bytes.HasPrefix(raw, []byte{'"'}) }

func decode(data []byte, into any) error {
	return jsonv2.Unmarshal(data, into, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}
