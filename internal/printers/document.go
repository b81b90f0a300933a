// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package printers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// Document writes document as "json" or "yaml", and in any other format what text makes of it. what names it in errors, such
// as "the findings". Nothing is written of a document that cannot be encoded.
func Document(w io.Writer, output, what string, document any, text func() string) error {
	var encoded []byte
	var err error
	switch output {
	case "json":
		encoded, err = JSON(document, "")
		encoded = append(encoded, '\n')
	case "yaml":
		encoded, err = YAML(document)
	default:
		encoded = []byte(text())
	}
	if err != nil {
		return fmt.Errorf("encode %s as %s: %w", what, output, err)
	}
	if _, err := w.Write(encoded); err != nil {
		return fmt.Errorf("print %s: %w", what, err)
	}
	return nil
}

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
