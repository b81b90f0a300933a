// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"io"
	"time"

	"sa-controller-manager/internal/printers"
)

// Printer writes rows as they come. Without End a document is cut off, so that nobody takes a part for all.
type Printer interface {
	Rows(rows []Row) error
	End(summary Summary) error
}

// NewPrinter writes a "table", a "wide" one, "json" or "yaml".
func NewPrinter(w io.Writer, output string, now time.Time) Printer {
	switch output {
	case "json":
		return &jsonPrinter{w: w}
	case "yaml":
		return &yamlPrinter{w: w}
	default:
		return &tablePrinter{w: w, wide: output == "wide", now: now}
	}
}

type jsonPrinter struct {
	w     io.Writer
	begun bool
}

func (p *jsonPrinter) Rows(rows []Row) error {
	for i := range rows {
		text, err := printers.JSON(&rows[i], "    ")
		if err != nil {
			return fmt.Errorf("encode a row as JSON: %w", err)
		}
		before := ",\n    "
		if !p.begun {
			p.begun, before = true, "{\n  \"tokens\": [\n    "
		}
		if err := write(p.w, before, string(text)); err != nil {
			return err
		}
	}
	return nil
}

func (p *jsonPrinter) End(summary Summary) error {
	text, err := printers.JSON(summary, "  ")
	if err != nil {
		return fmt.Errorf("encode the summary as JSON: %w", err)
	}
	end := "\n  ],\n  \"summary\": "
	if !p.begun {
		end = "{\n  \"tokens\": [],\n  \"summary\": "
	}
	return write(p.w, end, string(text), "\n}\n")
}

type yamlPrinter struct {
	w     io.Writer
	begun bool
}

func (p *yamlPrinter) Rows(rows []Row) error {
	text, err := printers.YAML(rows)
	if err != nil {
		return fmt.Errorf("encode rows as YAML: %w", err)
	}
	if !p.begun {
		p.begun = true
		return write(p.w, "tokens:\n", string(text))
	}
	return write(p.w, string(text))
}

// End has a mark of its own: a YAML document that is cut off between two rows is still one.
func (p *yamlPrinter) End(summary Summary) error {
	text, err := printers.YAML(map[string]Summary{"summary": summary})
	if err != nil {
		return fmt.Errorf("encode the summary as YAML: %w", err)
	}
	if !p.begun {
		return write(p.w, "tokens: []\n", string(text))
	}
	return write(p.w, string(text))
}

func write(w io.Writer, texts ...string) error {
	for _, text := range texts {
		if _, err := io.WriteString(w, text); err != nil {
			return fmt.Errorf("print the tokens: %w", err)
		}
	}
	return nil
}
