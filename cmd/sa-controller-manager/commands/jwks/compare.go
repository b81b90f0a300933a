// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package jwks

import (
	"crypto"
	"fmt"
	"io"
	"slices"
	"strings"

	"sa-controller-manager/internal/printers"
	"sa-controller-manager/signing"
)

// Result is how a key of the ring and a published one compare.
type Result string

const (
	// Same means: published as it is in the ring.
	Same Result = "same"
	// Missing means: in the ring and not published. Relying parties refuse its tokens.
	Missing Result = "missing"
	// Extra means: published and not in the ring. Relying parties accept tokens of a key that is
	// not ours.
	Extra Result = "extra"
	// Differs means: published otherwise than it is.
	Differs Result = "differs"
	// Leaked means: the document gives the private half away.
	Leaked Result = "leaked"
)

// Line is one key of the comparison. Its JSON form is that of the command's output.
type Line struct {
	ID        string `json:"keyID"`
	Algorithm string `json:"algorithm,omitempty"`
	// State is that in the ring, "" if it is not there.
	State  State  `json:"state,omitempty"`
	Result Result `json:"result"`
	Detail string `json:"detail,omitempty"`
}

// Compare holds what is published against the ring: a line for each key of the ring, then one for
// each further published one.
func Compare(ring []Key, published []signing.PublishedKey) []Line {
	lines := make([]Line, 0, len(ring)+len(published))
	seen := make([]bool, len(published))
	done := map[string]bool{}
	for _, key := range ring {
		if done[key.ID] {
			continue
		}
		done[key.ID] = true
		line := Line{ID: key.ID, Algorithm: key.Algorithm, State: key.State, Result: Missing, Detail: "it is not published"}
		for i, candidate := range published {
			if candidate.ID != key.ID && !equal(candidate.Key, key.Key) {
				continue
			}
			seen[i] = true
			result, detail := compareOne(key, candidate)
			if rank(result) > rank(line.Result) {
				line.Result, line.Detail = result, detail
			}
		}
		lines = append(lines, line)
	}
	for i, key := range published {
		if !seen[i] {
			lines = append(lines, extra(key))
		}
	}
	return lines
}

// rank orders the results of several published keys that are about one of the ring. That it is
// published rightly as well does not make up for what else is published under its ID.
func rank(result Result) int {
	switch result {
	case Leaked:
		return 3
	case Differs:
		return 2
	case Same:
		return 1
	default:
		return 0
	}
}

func compareOne(key Key, published signing.PublishedKey) (result Result, detail string) {
	switch {
	case published.Private:
		return Leaked, leakedDetail
	case published.Problem != "":
		return Differs, "what is published under its ID cannot be read: " + published.Problem
	case !equal(published.Key, key.Key):
		return Differs, "another key is published under its ID"
	case published.ID == "":
		return Differs, "it is published without a key ID"
	case published.ID != key.ID:
		return Differs, fmt.Sprintf("it is published with the key ID %q, which its tokens do not bear", published.ID)
	case published.Algorithm != "" && published.Algorithm != key.Algorithm:
		return Differs, fmt.Sprintf("it is published with the algorithm %q", published.Algorithm)
	}
	return Same, ""
}

const leakedDetail = "the document contains the private key, with which every reader can sign tokens: rotate now"

func extra(key signing.PublishedKey) Line {
	line := Line{ID: key.ID, Algorithm: key.Algorithm, Result: Extra, Detail: "it is no key of the ring"}
	if key.Problem != "" {
		line.Detail += ", and cannot be read: " + key.Problem
	}
	if key.Private {
		line.Result, line.Detail = Leaked, leakedDetail
	}
	return line
}

func equal(a, b crypto.PublicKey) bool {
	equatable, ok := a.(interface {
		Equal(other crypto.PublicKey) bool
	})
	return ok && equatable.Equal(b)
}

// Drifted reports whether any line is not as it should be.
func Drifted(lines []Line) bool {
	return slices.ContainsFunc(lines, func(line Line) bool { return line.Result != Same })
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
