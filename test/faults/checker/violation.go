// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"fmt"
	"slices"
)

// Violation is a promise that was not kept.
type Violation struct {
	// Promise is its number in docs/reliability.md.
	Promise int
	What    string
}

// String is one line.
func (v Violation) String() string { return fmt.Sprintf("promise %d: %s", v.Promise, v.What) }

// Violated begins one that a check returns.
func Violated(promise int, format string, args ...any) Violation {
	return Violation{Promise: promise, What: fmt.Sprintf(format, args...)}
}

// Of selects those of one promise.
func Of(violations []Violation, promise int) []Violation {
	return slices.DeleteFunc(slices.Clone(violations), func(v Violation) bool { return v.Promise != promise })
}

// Promises in a few words each; docs/reliability.md has all of them.
func Promises() []string {
	return []string{
		"every account has what it is owed, nothing else is touched",
		"no token for a dead UID",
		"one auto-created Secret each, no dangling reference",
		"every token verifies with a key of the ring",
		"Pods are admitted, and with all they are owed",
		"no secret byte leaves",
		"bad input changes nothing and is named",
		"goroutines and memory are bounded",
		"no write after the renew deadline",
	}
}
