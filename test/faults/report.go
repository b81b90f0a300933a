// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"io"
	"text/tabwriter"

	"sa-controller-manager/test/faults/checker"
)

// Row is one promise in the table at the end.
type Row struct {
	Promise int
	Text    string
	// Attacks is how many kinds of faults and races were aimed at it.
	Attacks int
	// Operations is how often somebody could have noticed that it is broken.
	Operations int
	Faults     int
	Violations int
}

// bounds is the promise at which broken clients are aimed.
const bounds = 8

// Table sums runs up.
func Table(outcomes ...checker.Outcome) []Row {
	var rows []Row
	for i, text := range checker.Promises() {
		row := Row{Promise: i + 1, Text: text}
		for _, o := range outcomes {
			row.Faults += faultsAimedAt(o, i+1)
			row.Attacks = max(row.Attacks, len(aimedAt(o, i+1)))
			row.Operations += looks(o, i+1)
			row.Violations += len(checker.Of(o.Violations, i+1))
			if row.Promise == bounds { // broken clients are no faults of the catalogue
				row.Attacks += o.BrokenKinds
				row.Faults += o.BrokenCalls
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// aimed are the lanes of faults that are aimed at a promise.
func aimed(promise int) []Lane {
	switch promise {
	case 7:
		return []Lane{Files}
	case 9:
		return []Lane{Processes}
	case 5, 8:
		return []Lane{Processes, Requests, Files, Registration}
	}
	return []Lane{Processes, Requests, Files}
}

func faultsAimedAt(o checker.Outcome, promise int) int {
	sum := 0
	for _, n := range aimedAt(o, promise) {
		sum += n
	}
	return sum
}

func aimedAt(o checker.Outcome, promise int) map[checker.Kind]int {
	found := map[checker.Kind]int{}
	lanes := map[Lane]bool{}
	for _, lane := range aimed(promise) {
		lanes[lane] = true
	}
	for _, entry := range Catalogue() {
		if n := o.Injected[entry.Kind]; n > 0 && lanes[entry.Lane] {
			found[entry.Kind] = n
		}
	}
	return found
}

// looks is what was done or looked at for the sake of a promise.
func looks(o checker.Outcome, promise int) int {
	switch promise {
	case 2:
		return o.Tokens + o.DeadTokens
	case 3:
		return o.Objects
	case 4:
		return o.Tokens
	case 5:
		return o.Pods
	case 6:
		return o.LogBytes
	case 7:
		return faultsAimedAt(o, 7)
	case 8:
		return o.Samples
	case 9:
		return o.Writes
	}
	return operations(o)
}

// WriteTable prints the rows.
func WriteTable(out io.Writer, rows []Row) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PROMISE\tATTACKS\tOPERATIONS\tFAULTS INJECTED\tVIOLATIONS")
	for _, row := range rows {
		fmt.Fprintf(table, "%d. %s\t%d\t%d\t%d\t%d\n", row.Promise, row.Text, row.Attacks, row.Operations, row.Faults, row.Violations)
	}
	return table.Flush()
}
