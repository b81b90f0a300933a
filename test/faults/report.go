// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"io"
	"text/tabwriter"

	"sa-controller-manager/test/faults/checker"
)

// WriteTable prints what runs have shown of each promise: how often it was looked at, and how often
// it was broken.
func WriteTable(out io.Writer, outcomes []checker.Outcome) error {
	kinds, faults, calls := map[checker.Kind]bool{}, 0, 0
	for _, o := range outcomes {
		calls += o.BrokenCalls
		for kind, n := range o.Injected {
			kinds[kind] = kinds[kind] || n > 0
			faults += n
		}
	}
	fmt.Fprintf(out, "%d faults of %d kinds, %d calls of broken clients\n\n", faults, len(kinds), calls)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PROMISE\tLOOKED AT\tVIOLATIONS")
	for i, text := range checker.Promises() {
		looked, found := 0, 0
		for _, o := range outcomes {
			looked += looks(o, i+1)
			found += len(checker.Of(o.Violations, i+1))
		}
		fmt.Fprintf(table, "%d. %s\t%d\t%d\n", i+1, text, looked, found)
	}
	return table.Flush()
}

// looks is how often somebody could have noticed that a promise is broken.
func looks(o checker.Outcome, promise int) int {
	operations := 0
	for _, n := range o.Operations {
		operations += n
	}
	return []int{operations, o.Tokens + o.DeadTokens, o.Objects, o.Tokens, o.Pods, o.LogBytes, o.BrokenCalls, o.Samples, o.Writes}[promise-1]
}
