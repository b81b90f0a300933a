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
	// Met is how many requests, or pieces of watches, a fault between our processes and
	// kube-apiserver was given to. Skipped is why a kind could not be injected.
	Met     map[Kind]int
	Skipped map[Kind]string
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
	// Reissued is how many token Secrets replace another one, Bound how many requested tokens had
	// to be good in the end.
	Reissued, Bound int
}
