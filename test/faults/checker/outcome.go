// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import "time"

// Outcome is what a run has shown.
type Outcome struct {
	Violations []Violation
	// Unsure are those of which other programs on the machine may be the reason.
	Unsure []Violation
	// Injected are faults, by kind.
	Injected map[string]int
	// What was looked at: operations of users, visits of broken clients, and others.
	Operations, BrokenCalls, Pods, Tokens, DeadTokens, Writes, Samples, LogBytes, Objects int
	// Reissued are token Secrets that replace another one.
	Reissued int
	// Settled is how long it took from the end of the last fault until all was well.
	Settled time.Duration
}
