// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// NoArguments refuses positional arguments in KCM's words, and where there are commands a word
// that is none of them. Empty ones pass, as in KCM: they are what an unset variable in a manifest
// becomes.
func NoArguments(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		if arg == "" {
			continue
		}
		err := fmt.Errorf("%q does not take any arguments, got %q", cmd.CommandPath(), args)
		if cmd.HasSubCommands() {
			err = fmt.Errorf("unknown command %q for %q", arg, cmd.CommandPath())
		}
		if similar := cmd.SuggestionsFor(arg); len(similar) > 0 {
			err = fmt.Errorf("%w; did you mean '%s %s'?", err, cmd.CommandPath(), strings.Join(similar, "' or '"))
		}
		return &UsageError{Err: err, Command: cmd.CommandPath()}
	}
	return nil
}

// Parent makes a command the parent of others. By itself it prints its help.
func Parent(parent *cobra.Command, children ...*cobra.Command) *cobra.Command {
	parent.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	// Cobra's own default, which it sets only where it words the error.
	parent.SuggestionsMinimumDistance = 2
	Add(parent, children...)
	return parent
}

// Add makes commands the children of parent. Those that do not check their arguments take none.
func Add(parent *cobra.Command, children ...*cobra.Command) {
	for _, cmd := range append(children, parent) {
		if cmd.Args == nil {
			cmd.Args = NoArguments
		}
	}
	parent.AddCommand(children...)
}

// WhenValid returns what a command runs: run, unless validate finds problems with the flags.
func WhenValid(validate func() []error, run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := InvalidFlags(cmd.CommandPath(), validate()); err != nil {
			return err
		}
		return run(cmd, args)
	}
}

// NoTokens is NoArguments where a token is what people may try.
var NoTokens = cobra.MatchAll(RefuseTokens, NoArguments)

// RefuseTokens keeps people from a habit, and never repeats what was given: it is in the
// list of processes and in the shell's history already, and must not get into a log too.
func RefuseTokens(cmd *cobra.Command, args []string) error {
	if !slices.ContainsFunc(args, resemblesToken) {
		return nil
	}
	return &UsageError{Command: cmd.CommandPath(), Err: errors.New(
		"this looks like a token as an argument, where everybody on the machine can read it and the shell remembers it; " +
			"give it on standard input or in a file, and think of it as known to others now")}
}

// longestPath is more than a path may have on Linux (PATH_MAX).
const longestPath = 4096

func resemblesToken(arg string) bool {
	if _, err := os.Lstat(arg); err == nil {
		return false
	}
	// eyJ is how every JSON object begins in base64.
	return len(arg) >= longestPath || strings.HasPrefix(arg, "eyJ") || strings.HasPrefix(strings.ToLower(arg), "bearer") ||
		len(arg) > 60 && strings.Count(arg, ".") == 2 && !strings.Contains(arg, "/")
}
