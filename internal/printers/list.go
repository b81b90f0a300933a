// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package printers

import (
	"fmt"
	"io"
)

// List writes a document with a head, a list of rows and a last field, while the rows arrive.
// Without End the document is incomplete, so that no reader takes a part of it for all.
type List[Row, End any] struct {
	// Output is "json" or "yaml".
	W      io.Writer
	Output string
	Head   Head
	// RowsField and EndField name the two fields after the head.
	RowsField, EndField string

	begun bool
}

// Rows appends rows.
func (l *List[Row, End]) Rows(rows []Row) error {
	if l.Output == "yaml" {
		return l.yamlRows(rows)
	}
	for i := range rows {
		text, err := encodeJSON(&rows[i], "    ")
		if err != nil {
			return fmt.Errorf("encode %s as JSON: %w", l.RowsField, err)
		}
		before := ",\n    "
		if !l.begun {
			l.begun, before = true, l.jsonHead()+"[\n    "
		}
		if err := l.write(before, string(text)); err != nil {
			return err
		}
	}
	return nil
}

func (l *List[Row, End]) jsonHead() string {
	return fmt.Sprintf("{\n  \"apiVersion\": %q,\n  \"kind\": %q,\n  %q: ", l.Head.APIVersion, l.Head.Kind, l.RowsField)
}

func (l *List[Row, End]) yamlHead() string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\n%s:", l.Head.APIVersion, l.Head.Kind, l.RowsField)
}

func (l *List[Row, End]) yamlRows(rows []Row) error {
	text, err := encodeYAML(rows)
	if err != nil {
		return fmt.Errorf("encode %s as YAML: %w", l.RowsField, err)
	}
	if !l.begun {
		l.begun = true
		return l.write(l.yamlHead(), "\n", string(text))
	}
	return l.write(string(text))
}

// End writes the last field. A YAML document that is cut off between two rows is still valid, so
// only this field shows a reader that it is complete.
func (l *List[Row, End]) End(end End) error {
	if l.Output == "yaml" {
		return l.yamlEnd(end)
	}
	text, err := encodeJSON(end, "  ")
	if err != nil {
		return fmt.Errorf("encode the %s as JSON: %w", l.EndField, err)
	}
	before := "\n  ],\n  \"" + l.EndField + "\": "
	if !l.begun {
		before = l.jsonHead() + "[],\n  \"" + l.EndField + "\": "
	}
	return l.write(before, string(text), "\n}\n")
}

func (l *List[Row, End]) yamlEnd(end End) error {
	text, err := encodeYAML(map[string]End{l.EndField: end})
	if err != nil {
		return fmt.Errorf("encode the %s as YAML: %w", l.EndField, err)
	}
	if !l.begun {
		return l.write(l.yamlHead(), " []\n", string(text))
	}
	return l.write(string(text))
}

func (l *List[Row, End]) write(texts ...string) error {
	for _, text := range texts {
		if _, err := io.WriteString(l.W, text); err != nil {
			return fmt.Errorf("print the %s: %w", l.RowsField, err)
		}
	}
	return nil
}
