// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/tokens"
)

// Output is the flag of a command that prints in several formats.
type Output struct {
	Format string

	formats []string
}

// AddFlag gives the command --output, which takes one of the formats and is the first of
// them by default.
func (o *Output) AddFlag(cmd *cobra.Command, formats ...string) {
	o.Format, o.formats = formats[0], formats
	names, last := options.Quoted(append(formats, printers.JSONPath+"TEMPLATE")), len(formats)
	cmd.Flags().StringVarP(&o.Format, "output", "o", o.Format, "Format: "+strings.Join(names[:last], ", ")+" or "+names[last]+".")
	AddCompletion(cmd, "output", append(formats, printers.JSONPath)...)
}

// Validate returns what is wrong with the flag.
func (o *Output) Validate() []error {
	var p options.Problems
	if template, ok := strings.CutPrefix(o.Format, printers.JSONPath); ok {
		if _, err := printers.ParseJSONPath(template); err != nil {
			p.Add("output", o.Format, "must be a JSONPath template: "+err.Error())
		}
		return p
	}
	p.OneOf("output", o.Format, o.formats...)
	return p
}

// AddCompletion lets the shell complete a flag.
func AddCompletion(cmd *cobra.Command, flag string, choices ...string) {
	// It fails only for a flag that is not there, which a test rules out.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

// AddChoiceCompletions lets the shell complete the flags of the manager that take a choice.
func AddChoiceCompletions(cmd *cobra.Command) {
	choices := map[string][]string{
		"token-secrets":       {string(options.TokenSecretsAuto), string(options.TokenSecretsManual)},
		"legacy-token-claims": {string(tokens.CompatClaims), string(tokens.UniqueClaims)},
		"logging-format":      {"text", "json"},
	}
	for flag, values := range choices {
		AddCompletion(cmd, flag, values...)
	}
}
