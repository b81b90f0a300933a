// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check has what is found wrong: how a finding is printed, and the sentences of the facts. Readiness, the
// commands, doctor, Events and metrics that report the same fact take it from here, with the same words.
package check

import (
	"fmt"
	"io"
)

// Finding is a problem that the user has to act on.
type Finding struct {
	// Code identifies the problem. Unlike the sentences it never changes.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Objects are the affected ones, if there may be several.
	Objects []string `json:"objects,omitempty"`
	Remedy  string   `json:"remedy,omitempty"`
	// Commands belong to the remedy, one for each object.
	Commands []string `json:"commands,omitempty"`
}

// Print writes findings with their numbers.
func Print(w io.Writer, findings []Finding) {
	for i, finding := range findings {
		fmt.Fprintf(w, "\n%d. %s\n", i+1, finding.Message)
		if finding.Remedy != "" {
			fmt.Fprintf(w, "   remedy: %s\n", finding.Remedy)
		}
	}
}
