// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
)

// printHelp writes what --help prints. columns is the width of the terminal; 0
// means lines are not wrapped.
func printHelp(w io.Writer, cmd *cobra.Command, sets cliflag.NamedFlagSets, columns int) {
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n  %s [command]\n\nCommands:\n", cmd.Long, cmd.UseLine(), cmd.CommandPath())
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintf(w, "  %-12s%s\n", sub.Name(), sub.Short)
		}
	}
	fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	cliflag.PrintSections(w, sets, columns)
}

// addChoiceCompletions lets the shell complete the flags that take a choice.
func addChoiceCompletions(cmd *cobra.Command) {
	choices := map[string][]string{
		"service-account-key-activation": {string(options.KeyActivationVerified), string(options.KeyActivationImmediate)},
		"token-secrets":                  {string(options.TokenSecretsAuto), string(options.TokenSecretsManual)},
		"legacy-token-claims":            {string(options.LegacyTokenClaimsCompat), string(options.LegacyTokenClaimsUnique)},
		"logging-format":                 {"text", "json"},
	}
	for flag, values := range choices {
		cli.AddCompletion(cmd, flag, values...)
	}
}
