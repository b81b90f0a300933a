// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"sa-controller-manager/internal/printers"
)

// SetUpRoot makes cmd the command that all others are below: where they print, how they
// take flags, and that Execute alone prints errors. It comes before flags and sub-commands.
func SetUpRoot(cmd *cobra.Command, stdout, stderr io.Writer) {
	// Cobra prints errors with the whole usage.
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	// Cobra's own default, which it sets only where it words the error.
	cmd.SuggestionsMinimumDistance = 2
	// Cobra's completion command keeps the writer it finds.
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if wrong := cmd.ValidateArgs(cmd.Flags().Args()); wrong != nil && cmd.HasSubCommands() {
			return wrong // a command that does not exist has no flags
		}
		return &UsageError{Err: err, Command: cmd.CommandPath()}
	})
	// Underscores are taken for hyphens, as in every Kubernetes component.
	cmd.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	cmd.SetHelpFunc(wrapsHelp(cmd.HelpFunc()))
}

// Execute runs the command line args, prints the error that it ends with, unless it has been
// reported, and returns the exit code of the process: 0, or 1 for bad flags and for failures at run
// time, as in every Kubernetes component, or 2 for findings.
func Execute(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	root.SetArgs(keyIDsLast(root, args))
	err := refuseContents(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	return exit(err, stderr)
}

// keyID matches a key ID that begins with a hyphen. Of 64 key IDs, which are base64url, one does.
var keyID = regexp.MustCompile(`^-[\w-]{42}$`)

// keyIDsLast returns args with "--" before the key IDs that begin with a hyphen, in a command that has key
// IDs as arguments. Without it they are flags that do not exist.
func keyIDsLast(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	ids := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return !keyID.MatchString(arg) })
	if err != nil || len(ids) == 0 || !strings.Contains(cmd.Use, "KEY-ID") || slices.Contains(args, "--") {
		return args
	}
	others := slices.DeleteFunc(slices.Clone(args), keyID.MatchString)
	return slices.Concat(others, []string{"--"}, ids)
}

func exit(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, ErrFindings) {
		return ExitFindings
	}
	if !errors.Is(err, ErrReported) {
		fmt.Fprintf(stderr, "Error: %v\n", err)
	}
	if usage := (*UsageError)(nil); errors.As(err, &usage) {
		fmt.Fprintf(stderr, "See '%s --help' for usage.\n", usage.Command)
	}
	return 1
}

// rare are flags that few users need.
var rare = []string{
	"account", "apiserver", "bound-tokens-only", "cache-age", "context",
	"grace", "leader-elect-resource-name", "leader-elect-resource-namespace", "limit-secret-references",
	"manifests-dir", "master", "pod-token", "published-ca-file", "service-account-key-sockets",
	"step-timeout", "timeout", "user", "webhook-failure-policy", "webhook-port", "webhook-timeout",
	"webhook-url-host",
}

// commonFirst has the rare flags last in a help with one list of flags.
func commonFirst(help string, flags *pflag.FlagSet) string {
	common, last := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.VisitAll(func(flag *pflag.Flag) {
		if slices.Contains(rare, flag.Name) {
			last.AddFlag(flag)
		} else {
			common.AddFlag(flag)
		}
	})
	if !last.HasFlags() {
		return help
	}
	return strings.Replace(help, strings.TrimRight(flags.FlagUsages(), "\n"),
		common.FlagUsages()+"\nFlags that few users need:\n"+strings.TrimRight(last.FlagUsages(), "\n"), 1)
}

// SetHelp gives a command a help with its flags in sections. Commands below it keep cobra's.
func SetHelp(cmd *cobra.Command, sets cliflag.NamedFlagSets) {
	others := cmd.HelpFunc()
	cmd.SetHelpFunc(wrapsHelp(func(asked *cobra.Command, args []string) {
		if asked == cmd {
			printHelp(cmd.OutOrStdout(), cmd, sets)
			return
		}
		others(asked, args)
	}))
}

func printHelp(w io.Writer, cmd *cobra.Command, sets cliflag.NamedFlagSets) {
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n", cmd.Long, cmd.UseLine())
	if cmd.HasSubCommands() {
		fmt.Fprintf(w, "  %s [command]\n\nCommands:\n", cmd.CommandPath())
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintf(w, "  %-12s%s\n", sub.Name(), sub.Short)
		}
	}
	fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	cliflag.PrintSections(w, sets, 0)
}

// wrapsHelp returns help for the width of the terminal. Cobra does not wrap at all, and pflag no line
// with a long word.
func wrapsHelp(help func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(cmd *cobra.Command, args []string) {
		var text strings.Builder
		out := cmd.OutOrStdout()
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(out)
		fmt.Fprint(out, wrap(commonFirst(text.String(), cmd.LocalFlags()), TerminalWidth(out)))
	}
}

// wrap fills the paragraphs of a help and breaks the texts of flags, so that no line is longer than
// columns, if that is not 0. Indented lines stay as they are: they are commands to copy.
func wrap(help string, columns int) string {
	if columns == 0 {
		return help
	}
	var lines []string
	for line := range strings.SplitSeq(help, "\n") {
		if last := len(lines) - 1; last >= 0 && isProse(line) && isProse(lines[last]) {
			lines[last] += " " + line
			continue
		}
		lines = append(lines, line)
	}
	for i, line := range lines {
		const gap = "   " // before the text of a flag
		text := strings.LastIndex(line, gap) + len(gap)
		switch {
		case isProse(line):
			text = 0
		case text < len(gap) || strings.TrimSpace(line[:text]) == "":
			continue
		}
		const narrow = 20 // the least for the text of a flag that continues below its name
		lines[i] = printers.Fold(line, min(text, max(columns/2, columns-narrow)), columns)
	}
	return strings.Join(lines, "\n")
}

func isProse(line string) bool { return line != "" && line[0] != ' ' }
