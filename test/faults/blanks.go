// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"

	"sa-controller-manager/test/faults/checker"
)

// Part is a part of the suite that has an Outcome.
type Part string

// The parts.
const (
	FaultsPart Part = "faults"
	LoadPart   Part = "load"
	SignerPart Part = "signer"
)

// Blanks is what a part was to look at and did not: that it has found nothing says nothing
// about that.
func Blanks(o checker.Outcome, part Part) []string {
	all, anything := []Part{FaultsPart, LoadPart, SignerPart}, 0
	for _, n := range o.Operations {
		anything += n
	}
	var blanks []string
	for _, counter := range []struct {
		what string
		n    int
		of   []Part
	}{
		{"tokens to verify", o.Tokens, all},
		{"samples of a process", o.Samples, all},
		{"lines in any log", o.LogBytes, all},
		{"objects to judge", o.Objects, all},
		{"Pods", o.Pods, all[:2]},
		{"writes of a leader", o.Writes, all[:2]},
		{"operations of users", anything, all[:1]},
		{"tokens of dead accounts", o.DeadTokens, all[:1]},
		{"broken clients", o.BrokenCalls, all[1:]},
	} {
		if counter.n == 0 && slices.Contains(counter.of, part) {
			blanks = append(blanks, "there were no "+counter.what)
		}
	}
	return blanks
}
