// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
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
	var blanks []string
	for _, counter := range counters(o, part) {
		if counter.n == 0 {
			blanks = append(blanks, "there were no "+counter.what)
		}
	}
	return blanks
}

type counter struct {
	what string
	n    int
}

// counters are those that must not be zero.
func counters(o checker.Outcome, part Part) []counter {
	all := []counter{
		{"tokens to verify", o.Tokens}, {"samples of a process", o.Samples},
		{"lines in any log", o.LogBytes}, {"objects to judge", o.Objects},
	}
	pods := []counter{{"Pods", o.Pods}, {"writes of a leader", o.Writes}}
	switch part {
	case FaultsPart:
		return append(append(all, pods...), counter{"operations of users", operations(o)}, counter{"tokens of dead accounts", o.DeadTokens})
	case RotationPart:
		return append(append(all, pods...), counter{"keys that were activated", o.Operations[activated]},
			counter{"commands that were killed", o.Operations[killed]}, counter{"token Secrets that replace one", o.Reissued},
			counter{"requested tokens", o.Bound}, counter{"lists that users edited", o.Operations[workload.Edited]},
			counter{"re-issue pairs that users tidied", o.Operations[workload.Tidied]}, counter{"copies of auto-created Secrets", o.Operations[workload.Copied]})
	case LoadPart:
		return append(append(all, pods...), counter{"broken clients", o.BrokenCalls})
	case SignerPart:
		return append(all, counter{"broken clients", o.BrokenCalls})
	}
	return all
}

func operations(o checker.Outcome) int {
	sum := 0
	for _, n := range o.Operations {
		sum += n
	}
	return sum
}

// Unmet is what is missing of the faults themselves. Where other programs have the machine
// one may come too late to meet anything.
func Unmet(o checker.Outcome, part Part) []string {
	var blanks []string
	for _, entry := range striking(part) {
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

// striking are the faults of a part.
func striking(part Part) []Entry {
	switch part {
	case FaultsPart:
		return Catalogue()
	case RotationPart:
		return interrupting()
	case LoadPart, SignerPart:
	}
	return nil
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

func (w *World) count(kind checker.Kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.injected[kind]++
}

func (w *World) skip(kind checker.Kind, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.skipped[kind] = why
}
