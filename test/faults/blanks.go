// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"slices"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

// Part is a part of the suite that has an Outcome.
type Part string

// The parts.
const (
	FaultsPart   Part = "faults"
	RotationPart Part = "rotation"
	LoadPart     Part = "load"
	SignerPart   Part = "signer"
)

// record is what became of each kind of fault.
type record struct {
	injected, met map[checker.Kind]int
	skipped       map[checker.Kind]string
}

func newRecord() record {
	return record{injected: map[checker.Kind]int{}, met: map[checker.Kind]int{}, skipped: map[checker.Kind]string{}}
}

// skippedError is why a fault cannot be injected on this machine.
type skippedError struct{ why string }

func (e skippedError) Error() string { return "skipped: " + e.why }

// Blanks is what a part was to look at and did not: that it has found nothing says nothing
// about that.
func Blanks(o checker.Outcome, part Part) []string {
	all, anything := []Part{FaultsPart, RotationPart, LoadPart, SignerPart}, 0
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
		{"Pods", o.Pods, all[:3]},
		{"writes of a leader", o.Writes, all[:3]},
		{"operations of users", anything, all[:1]},
		{"tokens of dead accounts", o.DeadTokens, all[:1]},
		{"keys that were activated", o.Operations[activated], all[1:2]},
		{"commands that were killed", o.Operations[killed], all[1:2]},
		{"token Secrets that replace one", o.Reissued, all[1:2]},
		{"requested tokens", o.Bound, all[1:2]},
		{"lists that users edited", o.Operations[workload.Edited], all[1:2]},
		{"re-issue pairs that users tidied", o.Operations[workload.Tidied], all[1:2]},
		{"copies of auto-created Secrets", o.Operations[workload.Copied], all[1:2]},
		{"broken clients", o.BrokenCalls, all[2:]},
	} {
		if counter.n == 0 && slices.Contains(counter.of, part) {
			blanks = append(blanks, "there were no "+counter.what)
		}
	}
	return blanks
}

// Unmet is what is missing of the faults themselves. Where other programs have the machine
// one may come too late to meet anything.
func Unmet(o checker.Outcome, part Part) []string {
	var blanks []string
	for _, entry := range map[Part][]Entry{FaultsPart: Catalogue(), RotationPart: interrupting()}[part] {
		met, counted := o.Met[entry.Kind]
		switch {
		case o.Injected[entry.Kind] == 0 && o.Skipped[entry.Kind] == "":
			blanks = append(blanks, "fault "+string(entry.Kind)+" was never injected")
		case o.Injected[entry.Kind] > 0 && counted && met == 0:
			blanks = append(blanks, "fault "+string(entry.Kind)+" was injected, and no request ever met it")
		}
	}
	return blanks
}

// meetLimit is how long a fault waits for a request to meet it. While no leader is there,
// or no kube-apiserver, nobody writes.
const meetLimit = 30 * time.Second

// awaitMet returns once something has met a fault, and notes how much.
func (w *World) awaitMet(ctx context.Context, kind checker.Kind, count func() int) {
	limit, cancel := context.WithTimeout(ctx, meetLimit)
	defer cancel()
	for count() == 0 {
		if !await.Sleep(limit, 20*time.Millisecond) {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.met[kind] += count()
}
