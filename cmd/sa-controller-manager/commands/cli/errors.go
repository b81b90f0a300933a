// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is what the commands share: errors and exit codes, positional arguments, the
// output option, progress on a terminal, and the connection flags with the
// client of a command. The root command turns what a command returns into the exit code of the
// process.
package cli

import (
	"errors"
	"fmt"
	"strings"
)

// ExitFindings is the exit code of a command that was able to do its work and has found
// what a person has to see to. Scripts tell it from 1, which is that it could not.
const ExitFindings = 2

// ErrFindings is returned by such a command after it has printed them.
var ErrFindings = errors.New("there are findings")

// ErrReported marks an error that is printed or in the log already.
var ErrReported = errors.New("reported")

// UsageError is a mistake in the command line. It is printed as plain text with
// a pointer to the help, never logged, and never followed by the whole usage.
type UsageError struct {
	Err error
	// Command is the path of the command whose help to point to.
	Command string
}

func (e *UsageError) Error() string {
	return e.Err.Error()
}

func (e *UsageError) Unwrap() error {
	return e.Err
}

// InvalidFlags makes one UsageError of problems, or nil of none. A single one
// stays on one line.
func InvalidFlags(command string, problems []error) error {
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return &UsageError{Err: problems[0], Command: command}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems with the flags:", len(problems))
	for _, p := range problems {
		fmt.Fprintf(&b, "\n  %v", p)
	}
	return &UsageError{Err: errors.New(b.String()), Command: command}
}
