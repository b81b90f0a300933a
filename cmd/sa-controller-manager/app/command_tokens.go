// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
)

// newTokensCommand is the parent of what shows tokens. It needs no running manager.
func newTokensCommand(client cli.ClientFunc) *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "tokens",
		Short: "Look into a token, or list the long-lived ones of a cluster and what is wrong with them",
		Args:  noTokens,
	}, newInspectCommand(client), newAuditCommand(client))
}

// noTokens is cli.NoArguments where a token is what people may try.
func noTokens(cmd *cobra.Command, args []string) error {
	if err := refuseTokens(cmd, args); err != nil {
		return err
	}
	return cli.NoArguments(cmd, args)
}

// refuseTokens keeps people from a habit, and never repeats what was given: it is in the
// list of processes and in the shell's history already, and must not get into a log too.
func refuseTokens(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		if !resemblesToken(arg) {
			continue
		}
		return &cli.UsageError{Command: cmd.CommandPath(), Err: errors.New(
			"this looks like a token as an argument, where everybody on the machine can read it and the shell remembers it; " +
				"give it on standard input or in a file, and think of it as known to others now")}
	}
	return nil
}

// longestPath is more than a path may have on Linux (PATH_MAX), whatever it names.
const longestPath = 4096

func resemblesToken(arg string) bool {
	if _, err := os.Lstat(arg); err == nil {
		return false
	}
	// eyJ is how every JSON object begins in base64.
	return len(arg) >= longestPath || strings.HasPrefix(arg, "eyJ") || strings.HasPrefix(strings.ToLower(arg), "bearer") ||
		len(arg) > 60 && strings.Count(arg, ".") == 2 && !strings.Contains(arg, "/")
}
