// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"sa-controller-manager/test/faults/checker"
)

// WriteTable prints what runs have shown of each promise: how often it was looked at, and how often
// it was broken. That one was not looked at is an error: that nothing was found says nothing about it.
func WriteTable(out io.Writer, outcomes []checker.Outcome) (err error) {
	kinds, faults, calls := map[string]bool{}, 0, 0
	for _, o := range outcomes {
		calls += o.BrokenCalls
		for kind, n := range o.Injected {
			kinds[kind] = true
			faults += n
		}
	}
	fmt.Fprintf(out, "\n%d faults of %d kinds, %d calls of broken clients\n\n", faults, len(kinds), calls)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PROMISE\tLOOKED AT\tVIOLATIONS")
	for i, text := range checker.Promises() {
		looked, found := 0, 0
		for _, o := range outcomes {
			looked += looks(o)[i]
			found += len(checker.Of(o.Violations, i+1))
		}
		fmt.Fprintf(table, "%d. %s\t%d\t%d\n", i+1, text, looked, found)
		if looked == 0 {
			err = errors.New("not everything was tested: see the zeros under LOOKED AT")
		}
	}
	return errors.Join(err, table.Flush())
}

// looks is how often somebody could have noticed that each promise is broken.
func looks(o checker.Outcome) []int {
	return []int{o.Operations, o.DeadTokens, o.Objects, o.Tokens, o.Pods, o.LogBytes, o.BrokenCalls, o.Samples, o.Writes}
}
