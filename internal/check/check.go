// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check has what a check of a cluster, a host or a process finds. A Fact is declared once, beside the code
// that finds it, and readiness, the commands, Events and alerts that report it print it in the same words.
package check

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sa-controller-manager/internal/printers"
)

// Fact is something that may be wrong. Its texts name in braces what a Finding fills in.
type Fact struct {
	// Code identifies it. Unlike the texts it never changes.
	Code string
	// Message says what is wrong, and Cost what the user loses. The page of its alert has Message too.
	Message, Cost string
	// Remedy says what to do. Its commands for a cluster end with {flags}.
	Remedy string
	// Unready facts fail the readiness of the process that finds them.
	Unready bool
}

// Finding is a problem that the user has to act on.
type Finding struct {
	// Check is the check of doctor that has found it.
	Check   string `json:"check,omitempty"`
	Code    string `json:"code"`
	Message string `json:"message"`
	// Why is what has shown it, such as the answer of kube-apiserver.
	Why string `json:"why,omitempty"`
	// Host is the one that it is about, if it is about one alone.
	Host string `json:"host,omitempty"`
	// Since is when it was first found, if that is known.
	Since time.Time `json:"since,omitzero"`
	Cost  string    `json:"cost,omitempty"`
	// Objects are the affected ones, if there may be several.
	Objects []string `json:"objects,omitempty"`
	Remedy  string   `json:"remedy,omitempty"`
	// Commands belong to the remedy, one for each object.
	Commands []string `json:"commands,omitempty"`

	Unready bool `json:"-"`
}

// Found returns the Finding with pairs of what is in braces and its value.
func (f Fact) Found(pairs ...string) Finding {
	fill := strings.NewReplacer(pairs...).Replace
	return Finding{Code: f.Code, Message: fill(f.Message), Cost: fill(f.Cost), Remedy: fill(f.Remedy), Unready: f.Unready}
}

// Because returns the Finding with what has shown it.
func (f Finding) Because(why string) Finding {
	f.Why = why
	return f
}

// About returns the Finding about objects, none without any.
func (f Finding) About(objects []string) []Finding {
	if len(objects) == 0 {
		return nil
	}
	f.Objects = objects
	return []Finding{f}
}

// WithFlags puts the flags that lead to the cluster into the commands of findings, each after a blank.
func WithFlags(findings []Finding, flags string) []Finding {
	findings = slices.Clone(findings) // others may read them
	for i := range findings {
		findings[i].Remedy = withFlags(findings[i].Remedy, flags)
		commands := slices.Clone(findings[i].Commands)
		for j := range commands {
			commands[j] = withFlags(commands[j], flags)
		}
		findings[i].Commands = commands
	}
	return findings
}

func withFlags(text, flags string) string {
	if strings.Contains(text, "kubectl") { // it has another name for it
		flags = strings.ReplaceAll(flags, " --master=", " --server=")
	}
	return strings.ReplaceAll(text, "{flags}", flags)
}

// Result is what a check has found.
type Result struct {
	Findings []Finding
	// Note says what was looked at, or why nothing was: then Skipped is set, which must not pass for "ok".
	Note    string
	Skipped bool
}

// Skip is the result of a check that has nothing to look at.
func Skip(why string) Result { return Result{Note: why, Skipped: true} }

// Error returns the findings for a caller that ends with them, nil without any. flags are as for WithFlags.
func Error(findings []Finding, flags string) error {
	if len(findings) == 0 {
		return nil
	}
	var lines []string
	for _, f := range WithFlags(findings, flags) {
		lines = append(lines, f.Line())
	}
	return errors.New(strings.Join(lines, "; "))
}

// Line returns the finding in one line, without characters that control a terminal.
func (f Finding) Line() string {
	text := f.text()
	if len(f.Objects) > 0 {
		text += ": " + strings.Join(f.Objects, ", ")
	}
	if f.Cost != "" {
		text += ", so that " + f.Cost
	}
	if !f.Since.IsZero() {
		text += "; since " + f.Since.UTC().Format(time.RFC3339)
	}
	if f.Remedy != "" {
		text += "; " + f.Remedy
	}
	return printers.Printable(text)
}

func (f Finding) text() string {
	if f.Why == "" {
		return f.Message
	}
	return strings.ReplaceAll(f.Message+": "+f.Why, "\n", "; ")
}

// Print writes findings with their numbers, in lines of so many columns at most, of any length for 0.
func Print(w io.Writer, findings []Finding, columns int) {
	for i, f := range findings {
		title := fmt.Sprintf("%d. %s", i+1, strings.TrimPrefix(f.Check+": ", ": "))
		since := ""
		if !f.Since.IsZero() {
			since = f.Since.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "\n%s\n", printers.Fold(printers.Printable(title+f.text()), 3, columns))
		for _, line := range [][2]string{
			{"host:   ", f.Host}, {"where:  ", printers.Shorten(f.Objects, len(f.Objects))}, {"since:  ", since},
			{"costs:  ", f.Cost}, {"remedy: ", f.Remedy},
		} {
			if line[1] != "" {
				fmt.Fprintln(w, printers.Fold("   "+line[0]+printers.Printable(line[1]), 11, columns))
			}
		}
		for _, command := range f.Commands[:min(len(f.Commands), printers.Shown)] {
			fmt.Fprintf(w, "           %s\n", command)
		}
	}
}
