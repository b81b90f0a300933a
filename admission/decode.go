// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads an object of a request into Go types that name the members of interest.
// Members match with their case, as in kube-apiserver, and unknown ones are stepped over.
// It refuses what two readers could understand differently: repeated members, and text
// that is not UTF-8. The error has no value of the object in it.
func Decode(object []byte, into any) error {
	return withoutValues(json.Unmarshal(object, into))
}

// decodeLeniently is Decode as the apiserver would do it: of repeated members the last one
// counts. It is for the review, which the apiserver has written.
func decodeLeniently(body []byte, into any) error {
	return withoutValues(json.Unmarshal(body, into, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)))
}

// withoutValues keeps what was sent out of an error: it ends in answers and in logs.
func withoutValues(err error) error {
	if wrongType, ok := errors.AsType[*json.SemanticError](err); ok {
		// The names in it may be as long as a body.
		return fmt.Errorf("%.100q is %s, which does not belong there", wrongType.JSONPointer, described(wrongType))
	}
	if malformed, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fmt.Errorf("%w at byte %d", malformed.Err, malformed.ByteOffset)
	}
	return err
}

// described says what was found, where that is what is wrong with it.
func described(found *json.SemanticError) string {
	kind := found.JSONKind
	if found.Err != nil {
		kind = 0
	}
	switch kind {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n', 't', 'f':
		return kind.String() // null, true or false
	default:
		return "a value"
	}
}
