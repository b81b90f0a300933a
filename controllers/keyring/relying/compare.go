// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package relying

import (
	"fmt"
	"slices"

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
	State  signing.Role `json:"state,omitempty"`
	Result Result       `json:"result"`
	Detail string       `json:"detail,omitempty"`
}

// Compare holds what is published against the ring: a line for each key of the ring, then one for
// each further published one.
func Compare(ring []signing.Key, documents []signing.PublicKey) []Line {
	lines := make([]Line, 0, len(ring)+len(documents))
	done := map[string]bool{}
	for _, key := range ring {
		if done[key.ID] {
			continue
		}
		done[key.ID] = true
		result, detail := Find(key.PublicKey, documents)
		lines = append(lines, Line{ID: key.ID, Algorithm: key.Algorithm, State: key.Role, Result: result, Detail: detail})
	}
	for _, candidate := range documents {
		if !slices.ContainsFunc(ring, func(key signing.Key) bool { return isAbout(candidate, key.PublicKey) }) {
			lines = append(lines, extra(candidate))
		}
	}
	return lines
}

func extra(key signing.PublicKey) Line {
	line := Line{ID: key.ID, Algorithm: key.Algorithm, Result: Extra, Detail: "it is none of the given keys"}
	switch key.Problem {
	case "":
	case signing.ProblemPrivate:
		line.Result, line.Detail = Leaked, key.Problem
	default:
		line.Detail += ", and cannot be read: " + key.Problem
	}
	return line
}

// Find compares a key of the ring with what is published. A right entry does not outweigh a wrong one
// under the same ID, but one of the same key under another ID, as a verification file may have it.
func Find(key signing.PublicKey, published []signing.PublicKey) (result Result, detail string) {
	result, detail = Missing, "it is not published"
	for _, candidate := range published {
		if !isAbout(candidate, key) {
			continue
		}
		found, why := compare(key, candidate)
		sameID := func(k signing.PublicKey) bool { return k.ID == key.ID }
		if found == Differs && !sameID(candidate) && slices.ContainsFunc(published, sameID) {
			continue
		}
		if rank(found) > rank(result) {
			result, detail = found, why
		}
	}
	return result, detail
}

// isAbout reports whether a published key has the ID of a key of the ring, or is that key.
func isAbout(published, key signing.PublicKey) bool {
	return published.ID == key.ID || published.SameKey(key)
}

func rank(result Result) int {
	return slices.Index([]Result{Missing, Same, Differs, Leaked}, result)
}

func compare(key, published signing.PublicKey) (result Result, detail string) {
	switch {
	case published.Problem == signing.ProblemPrivate:
		return Leaked, published.Problem
	case published.Problem != "":
		return Differs, "what is published under its ID cannot be read: " + published.Problem
	case !published.SameKey(key):
		return Differs, "another key is published under its ID"
	case published.ID != key.ID:
		return Differs, fmt.Sprintf("it is published with the key ID %q, which its tokens do not bear", published.ID)
	case published.Algorithm != "" && published.Algorithm != key.Algorithm:
		return Differs, fmt.Sprintf("it is published with the algorithm %q", published.Algorithm)
	}
	return Same, ""
}
