// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	AddCompletion(cmd, "output", formats...)
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
	p.OneOf("output", o.Format, append(slices.Clone(o.formats), printers.JSONPath+"TEMPLATE")...)
	return p
}

// AddCompletion lets the shell complete a flag.
func AddCompletion(cmd *cobra.Command, flag string, choices ...string) {
	// It fails only for a flag that is not there, which a test rules out.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

// AddDays adds a flag of a time whose unit may also be d, w or y, as in Prometheus. There is no default.
func AddDays(flags *pflag.FlagSet, value *time.Duration, name, usage string) {
	flags.VarPF((*days)(value), name, "", usage).DefValue = ""
}

// days is a flag's value whose error says what is wanted.
type days time.Duration

// Set implements pflag.Value.
func (d *days) Set(value string) error {
	parsed, err := time.ParseDuration(value)
	*d = days(parsed)
	if other, unknown := model.ParseDuration(value); err != nil && unknown == nil {
		*d, err = days(other), nil
	}
	if err != nil || *d < 0 {
		return errors.New("want a time such as 36h or 90d")
	}
	return nil
}

// String implements pflag.Value.
func (d *days) String() string { return time.Duration(*d).String() }

// Type implements pflag.Value.
func (d *days) Type() string { return "duration" }

// AddNamespaceCompletion lets the shell complete --namespace with what kube-apiserver lists within 5 s.
func AddNamespaceCompletion(cmd *cobra.Command, client ClientFunc, o *options.Connection) {
	complete := func(cmd *cobra.Command, _ []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
		defer cancel()
		connected, err := client(o)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		list, err := connected.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	_ = cmd.RegisterFlagCompletionFunc("namespace", complete) // as above
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
