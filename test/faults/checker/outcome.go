// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import "time"

// Outcome is what a run has shown.
type Outcome struct {
	Violations []Violation
	// Operations of users, by kind; Injected faults, by kind.
	Operations map[string]int
	Injected   map[Kind]int
	// BrokenCalls is how often broken clients came.
	BrokenCalls int
	// Unsure is what cannot be told because other programs have used the machine; nil if all
	// can.
	Unsure error
	// What was looked at.
	Pods, Tokens, DeadTokens, Writes, Samples, LogBytes, Objects int
	// Settled is how long it took from the end of the last fault until all was well.
	Settled time.Duration
	Most    Sample
}
