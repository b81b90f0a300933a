// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printers writes what a command has found out in the format of its --output: for
// people as text, which is mostly a table, and for programs as JSON or YAML.
//
// Much of it was written by strangers: names, key IDs, claims, the words of a server. What must
// never happen: that it steers a terminal, or makes a document that no reader takes.
package printers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"sigs.k8s.io/yaml"
)

// APIVersion is that of every document. Under one version fields and codes are added, and none is
// changed or taken away; docs/cli.md has them all.
const APIVersion = "sa-controller-manager/v1"

// Head is embedded in every document, as its first field.
type Head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// Of is the head of a document of the kind.
func Of(kind string) Head { return Head{APIVersion, kind} }

func (h Head) kind() string { return h.Kind }

// headed is what embeds a Head.
type headed interface{ kind() string }

// Finding is something that the user has to see to.
type Finding struct {
	// Code says which one it is. Unlike the sentences it never changes.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Objects are those that it is about, if there may be several.
	Objects []string `json:"objects,omitempty"`
	Remedy  string   `json:"remedy,omitempty"`
}

// Document writes document as "json" or "yaml", and in any other format what text makes of it.
// Nothing is written of a document that cannot be encoded.
func Document(w io.Writer, output string, document headed, text func() string) error {
	var encoded []byte
	var err error
	switch output {
	case "json":
		encoded, err = encodeJSON(document, "")
		encoded = append(encoded, '\n')
	case "yaml":
		encoded, err = encodeYAML(document)
	default:
		encoded = []byte(text())
	}
	if err != nil {
		return fmt.Errorf("encode the %s as %s: %w", document.kind(), output, err)
	}
	if _, err := w.Write(encoded); err != nil {
		return fmt.Errorf("print the %s: %w", document.kind(), err)
	}
	return nil
}

// encodeJSON encodes what may hold text of strangers, as json.MarshalIndent does, without a newline
// at the end. Control characters are escaped in it, so that it steers no terminal.
func encodeJSON(document any, prefix string) ([]byte, error) {
	text, err := json.MarshalIndent(document, prefix, "  ")
	return escaped(text), err
}

// encodeYAML encodes the same. Without the escapes there would be no YAML: its reader, through
// which the fields get their names, refuses what JSON allows.
func encodeYAML(document any) ([]byte, error) {
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

// Table aligns cells that end with a tab, once it is flushed.
func Table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 3, ' ', 0) }

// OrNone is Printable for a cell that may be empty.
func OrNone(text string) string { return Printable(cmp.Or(text, "<none>")) }

// Printable keeps text of strangers from steering a terminal and from breaking a table: what
// cannot be seen is escaped.
func Printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, "\\u%04x", r)
	}
	return b.String()
}
