// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	cliflag "k8s.io/component-base/cli/flag"
)

// addGlobalFlags adds the flags that are about the command, not the manager.
func addGlobalFlags(fs *pflag.FlagSet) {
	fs.BoolP("help", "h", false, "Print this help and exit.")
	fs.Bool("version", false, "Print the version and exit. The version command prints more.")
	setOrigin(fs, asKCM, "help", "version")
}

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

// terminalWidth is the number of columns of the terminal that w is, or 0.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// addChoiceCompletions lets the shell complete the flags that take a choice.
func addChoiceCompletions(cmd *cobra.Command) {
	choices := map[string][]string{
		"service-account-key-activation": {string(KeyActivationVerified), string(KeyActivationImmediate)},
		"token-secrets":                  {string(TokenSecretsAuto), string(TokenSecretsManual)},
		"legacy-token-claims":            {string(LegacyTokenClaimsCompat), string(LegacyTokenClaimsUnique)},
		"logging-format":                 {"text", "json"},
	}
	for flag, values := range choices {
		addCompletion(cmd, flag, values...)
	}
}

// addCompletion lets the shell complete a flag.
func addCompletion(cmd *cobra.Command, flag string, choices ...string) {
	// It fails only for a flag that is not there, which a test rules out.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}
