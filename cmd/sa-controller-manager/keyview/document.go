// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyview

import (
	"bytes"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"
)

// JSON encodes what may hold text of strangers, as json.MarshalIndent does, without a newline
// at the end. Control characters are escaped in it, so that it steers no terminal.
func JSON(document any, prefix string) ([]byte, error) {
	text, err := json.MarshalIndent(document, prefix, "  ")
	return escaped(text), err
}

// YAML encodes the same. Without the escapes there would be no YAML: its reader, through which
// the fields get their names, refuses what JSON allows.
func YAML(document any) ([]byte, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(escaped(text))
}

// escaped is JSON with the control characters that encoding/json leaves as they are, and the
// three more that YAML does not allow (YAML 1.1, section 5.1), as \uXXXX (RFC 8259, section 7).
// Outside of strings JSON has none of them.
func escaped(text []byte) []byte {
	control := func(r rune) bool { return r >= 0x7f && r < 0xa0 || r == 0xfeff || r == 0xfffe || r == 0xffff }
	if !bytes.ContainsFunc(text, control) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if control(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.Bytes()
}
