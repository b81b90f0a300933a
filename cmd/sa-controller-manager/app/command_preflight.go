// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/preflight"
)

// preflightTimeout bounds the whole command.
const preflightTimeout = 30 * time.Second

const preflightDescription = `Ask kube-apiserver for every permission that this program would need with the same
flags. Nothing is changed. The program asks the same at its start, says what is missing
in its log and in /readyz/permissions, and goes on trying until it is granted.

Exit code 0: all is granted. 1: it could not be found out. 2: something is missing; what
to do about it goes to standard error.`

const preflightExamples = `  # What may the identity of this kubeconfig do, and what is missing?
  sa-controller-manager preflight --kubeconfig=/etc/kubernetes/sa-controller-manager.conf \
    --service-account-private-key-file=/etc/kubernetes/pki/sa.key \
    --token-secrets=manual --webhook-registration=url

  # Grant what is missing, as an administrator. Roles that exist are replaced.
  sa-controller-manager preflight -o grant --kubeconfig=sa-controller-manager.conf | kubectl apply -f -`

// newPreflightCommand takes all flags of the manager, because they decide what it needs.
func newPreflightCommand(client cli.ClientFunc) *cobra.Command {
	o, output := options.New(), cli.Output{}
	cmd := &cobra.Command{
		Use:     "preflight",
		Short:   "Ask whether all permissions are there, and print what grants the missing ones",
		Long:    preflightDescription,
		Example: preflightExamples,
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.InvalidFlags(cmd.CommandPath(), append(o.Validate(), output.Validate()...)); err != nil {
				return err
			}
			return runPreflight(cmd, o, client, output.Format)
		},
	}
	sets := o.Flags()
	for _, name := range sets.Order {
		cmd.Flags().AddFlagSet(sets.FlagSets[name])
	}
	output.AddFlag(cmd, "table", "json", "yaml", "grant")
	cmd.Flags().Lookup("output").Usage = "Format: \"table\", \"json\" or \"yaml\"; \"grant\" prints the roles and bindings that grant what is missing, and nothing else."
	addChoiceCompletions(cmd)
	return cmd
}

func runPreflight(cmd *cobra.Command, o *options.Options, client cli.ClientFunc, output string) error {
	connected, err := client(&o.Connection)
	if err != nil {
		return err
	}
	needs, err := preflight.RequiredBy(o)
	if err != nil {
		return err
	}
	rules := preflight.Rules(needs)
	report, err := askPermissions(cmd.Context(), connected, rules)
	if err != nil {
		return err
	}
	if err := printPermissions(cmd, report, rules, output); err != nil {
		return err
	}
	if missing := report.Missing(); len(missing) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d permissions are missing: %s\nTo mend it: %s\n",
			len(missing), len(report.Answers), preflight.Join(missing), report.Mend())
		return cli.ErrFindings
	}
	return report.Err()
}

// askPermissions first looks whether anybody answers: one error says that better than
// one for each question.
func askPermissions(ctx context.Context, client kubernetes.Interface, rules []preflight.Rule) (preflight.Report, error) {
	ctx, cancel := cli.AnswerWithin(ctx, preflightTimeout)
	defer cancel()
	if _, err := cli.ServerVersion(ctx, client); err != nil {
		return preflight.Report{}, err
	}
	return preflight.Check(ctx, client, preflight.Accesses(rules)), nil
}

func printPermissions(cmd *cobra.Command, report preflight.Report, rules []preflight.Rule, output string) error {
	out := cmd.OutOrStdout()
	if output != "grant" {
		return report.Print(out, rules, output)
	}
	grants, err := preflight.YAML(report.Grant(rules))
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(out, grants)
	return err
}
