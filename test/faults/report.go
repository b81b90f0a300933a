// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"io"
	"text/tabwriter"
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

// promises in a few words each; docs/reliability.md has all of them.
func promises() []string {
	return []string{
		"every account has what it is owed, nothing else is touched",
		"no token for a dead UID",
		"one auto-created Secret each, no dangling reference",
		"every token verifies with a key of the ring",
		"Pods are admitted, and with all they are owed",
		"no secret byte leaves",
		"bad input changes nothing and is named",
		"goroutines and memory are bounded",
		"no write after the renew deadline",
	}
}

// bounds is the promise at which broken clients are aimed.
const bounds = 8

// Table sums runs up.
func Table(outcomes ...Outcome) []Row {
	var rows []Row
	for i, text := range promises() {
		row := Row{Promise: i + 1, Text: text}
		for _, o := range outcomes {
			row.Faults += o.faults(i + 1)
			row.Attacks = max(row.Attacks, o.kinds(i+1))
			row.Operations += o.looks(i + 1)
			row.Violations += len(Of(o.Violations, i+1))
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

func (o Outcome) faults(promise int) int {
	sum := 0
	for kind, n := range o.aimedAt(promise) {
		_ = kind
		sum += n
	}
	return sum
}

func (o Outcome) kinds(promise int) int { return len(o.aimedAt(promise)) }

func (o Outcome) aimedAt(promise int) map[Kind]int {
	found := map[Kind]int{}
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
func (o Outcome) looks(promise int) int {
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
		return o.faults(7)
	case 8:
		return o.Samples
	case 9:
		return o.Writes
	}
	return o.operations()
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
