// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"sa-controller-manager/internal/printers"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/published"
)

// Line is one key of the comparison. Its JSON form is that of the command's output.
type Line struct {
	ID        string `json:"keyID"`
	Algorithm string `json:"algorithm,omitempty"`
	// State is that in the ring, "" if it is not there.
	State  State            `json:"state,omitempty"`
	Result published.Result `json:"result"`
	Detail string           `json:"detail,omitempty"`
}

// Compare holds what is published against the ring: a line for each key of the ring, then one for
// each further published one.
func Compare(ring []Key, documents []signing.PublishedKey) []Line {
	lines := make([]Line, 0, len(ring)+len(documents))
	done := map[string]bool{}
	for _, key := range ring {
		if done[key.ID] {
			continue
		}
		done[key.ID] = true
		result, detail := published.Find(key.PublicKey, documents)
		lines = append(lines, Line{ID: key.ID, Algorithm: key.Algorithm, State: key.State, Result: result, Detail: detail})
	}
	for _, candidate := range documents {
		if !slices.ContainsFunc(ring, func(key Key) bool { return published.IsAbout(candidate, key.PublicKey) }) {
			lines = append(lines, extra(candidate))
		}
	}
	return lines
}

func extra(key signing.PublishedKey) Line {
	line := Line{ID: key.ID, Algorithm: key.Algorithm, Result: published.Extra, Detail: "it is no key of the ring"}
	if key.Problem != "" {
		line.Detail += ", and cannot be read: " + key.Problem
	}
	if key.Private {
		line.Result, line.Detail = published.Leaked, published.LeakedDetail
	}
	return line
}

// Drifted reports whether any line is not as it should be.
func Drifted(lines []Line) bool {
	return slices.ContainsFunc(lines, func(line Line) bool { return line.Result != published.Same })
}

// Print writes a comparison as "table", "json" or "yaml".
func Print(w io.Writer, lines []Line, output string) error {
	document := struct {
		printers.Head
		Keys []Line `json:"keys"`
	}{printers.Of("KeyComparison"), lines}
	return printers.Document(w, output, document, func() string { return table(lines) })
}

func table(lines []Line) string {
	var b strings.Builder
	table := printers.Table(&b)
	fmt.Fprintln(table, "KEY-ID\tALGORITHM\tSTATE\tRESULT\tDETAIL")
	for _, line := range lines {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n",
			printers.OrNone(line.ID), printers.OrNone(line.Algorithm), printers.OrNone(string(line.State)), line.Result, printers.Printable(line.Detail))
	}
	table.Flush()
	return b.String()
}
