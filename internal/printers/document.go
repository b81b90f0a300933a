// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printers writes the result of a command in the format of its --output: text, mostly
// tables, for people, and JSON or YAML for programs.
//
// Much of the content is untrusted: names, key IDs, claims, messages of a server. It must never
// control a terminal or make a document that parsers refuse.
package printers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
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

// Of returns the head of a document of this kind.
func Of(kind string) Head { return Head{APIVersion, kind} }

func (h Head) kind() string { return h.Kind }

// headed is any document that embeds a Head.
type headed interface{ kind() string }

// JSONPath begins a format that ends with a template, as kubectl's.
const JSONPath = "jsonpath="

// ParseJSONPath parses such a template, as {.tokens[*].name}.
func ParseJSONPath(template string) (*jsonpath.JSONPath, error) {
	if template == "" {
		return nil, errors.New("want a template such as {.kind}")
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	return path, path.Parse(template)
}

// Document writes document as "json" or "yaml", what a template finds in it after JSONPath, and the
// result of text for any other format. It writes nothing if the document cannot be encoded.
func Document(w io.Writer, output string, document headed, text func() string) error {
	var encoded []byte
	var err error
	template, isPath := strings.CutPrefix(output, JSONPath)
	switch {
	case isPath:
		encoded, err = find(template, document)
	case output == "json":
		encoded, err = JSON(document)
	case output == "yaml":
		encoded, err = YAML(document)
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

// find evaluates the template. Of what is untrusted only line breaks and tabs are printed as they are.
func find(template string, document any) ([]byte, error) {
	path, err := ParseJSONPath(template)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	var fields any
	var found bytes.Buffer
	if err = utiljson.Unmarshal(text, &fields); err == nil { // integers stay integers
		err = path.Execute(&found, fields)
	}
	return []byte(printable(found.String(), "\n\t")), err
}

// JSON encodes untrusted text as json.MarshalIndent does, with a newline at the end. It escapes control
// characters, so that none controls a terminal.
func JSON(document any) ([]byte, error) {
	text, err := json.MarshalIndent(document, "", "  ")
	return append(escaped(text), '\n'), err
}

// YAML encodes untrusted text as YAML, with some 25 KiB of memory for each object of a dozen fields. It converts JSON, which names
// the fields, and the YAML parser refuses some characters that JSON allows, so they must be escaped first.
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

// Table aligns cells that end with a tab, once it is flushed.
func Table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 3, ' ', 0) }

// Shown is how many names of a list a table has.
const Shown = 5

// Shorten joins the first names, of all that there are.
func Shorten(names []string, all int) string {
	if more := all - Shown; more > 0 {
		return fmt.Sprintf("%s and %d more (-o json has them)", strings.Join(names[:Shown], ", "), more)
	}
	return strings.Join(names, ", ")
}

// OrNone is Printable for a cell that may be empty.
func OrNone(text string) string { return Printable(cmp.Or(text, "<none>")) }

// Printable escapes invisible characters, so that untrusted text neither controls a terminal nor
// breaks a table.
func Printable(text string) string { return printable(text, "") }

func printable(text, besides string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) || strings.ContainsRune(besides, r) {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, "\\u%04x", r)
	}
	return b.String()
}
