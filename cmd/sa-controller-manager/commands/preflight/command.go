// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight is the command that asks for the permissions of package permissions, and prints
// what grants the missing ones.
package preflight

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
)

// commandTimeout bounds the whole command.
const commandTimeout = 30 * time.Second

const description = `Ask kube-apiserver for every permission that this program would need with the same
flags. Nothing is changed. The program asks the same at its start, says what is missing
in its log and in /readyz/permissions, and goes on trying until it is granted.

Exit code 0: all is granted. 1: it could not be found out. 2: something is missing.`

const examples = `  # What may the identity of this kubeconfig do, and what is missing?
  sa-controller-manager preflight --kubeconfig=/etc/kubernetes/sa-controller-manager/kubeconfig \
    --service-account-private-key-file=/etc/kubernetes/pki/sa.key \
    --token-secrets=manual --webhook-registration=url

  # Grant what is missing, as an administrator. Roles that exist are replaced.
  sa-controller-manager preflight -o grant --kubeconfig=sa-controller-manager.conf | kubectl apply -f -`

// NewCommand takes all flags of the manager, because they decide what it needs. Below it is the same for "signer".
func NewCommand(client cli.ClientFunc) *cobra.Command {
	cmd := newCommand(client, secureport.New())
	cmd.Use = "preflight"
	signer := newCommand(client, secureport.NewSigner())
	signer.Use, signer.Example = "signer", `  sa-controller-manager preflight signer -o grant --kubeconfig=sa-controller-manager.conf \
    --service-account-key-ring=ring.json --service-account-issuer=https://kubernetes.default.svc.cluster.local`
	cli.Add(cmd, signer)
	return cmd
}

func newCommand(client cli.ClientFunc, o *options.Options) *cobra.Command {
	output := cli.Output{}
	cmd := &cobra.Command{
		Short:   "Ask whether all permissions are there, and print what grants the missing ones",
		Long:    description,
		Example: examples,
		RunE: cli.WhenValid(func() []error { return append(o.Validate(), output.Validate()...) }, func(cmd *cobra.Command,
			_ []string) error {
			return run(cmd, o, client, output.Format)
		}),
	}
	sets := o.Flags()
	for _, name := range sets.Order {
		cmd.Flags().AddFlagSet(sets.FlagSets[name])
	}
	output.AddFlag(cmd, "table", "json", "yaml", "grant")
	sets.FlagSet("preflight").AddFlag(cmd.Flags().Lookup("output"))
	sets.Order = append([]string{"preflight"}, slices.DeleteFunc(sets.Order, func(name string) bool { return name == "preflight" })...)
	cli.SetHelp(cmd, sets)
	cmd.Flags().Lookup("output").Usage = "Format: \"table\", \"json\", \"yaml\" or \"jsonpath=TEMPLATE\"; " +
		"\"grant\" prints the roles and bindings that grant what is missing, and nothing else."
	cli.AddChoiceCompletions(cmd)
	return cmd
}

func run(cmd *cobra.Command, o *options.Options, client cli.ClientFunc, output string) error {
	connected, err := client(&o.Connection)
	if err != nil {
		return err
	}
	rules, err := permissions.Rules(o)
	if err != nil {
		return err
	}
	report, err := checkNow(cmd.Context(), connected, rules)
	if err != nil {
		return err
	}
	findings := check.WithFlags(report.Findings(rules), "") // the given ones are of the one that lacks them
	if output == "grant" {
		var grants string
		if grants, err = report.Grants(rules); err == nil {
			_, err = io.WriteString(cmd.OutOrStdout(), grants)
		}
		if grants == "" { // there is nothing to apply for a user whom the manifests do not name
			check.Print(cmd.ErrOrStderr(), findings, 0)
		}
	} else {
		printed := newReport(report, rules, findings)
		err = printers.Document(cmd.OutOrStdout(), output, printed, printed.table)
	}
	switch {
	case err != nil:
		return err
	case len(findings) > 0:
		return cli.ErrFindings
	}
	return report.Err()
}

// checkNow first asks whether kube-apiserver answers: one error says that better than
// one for each question.
func checkNow(ctx context.Context, client kubernetes.Interface, rules []permissions.Rule) (permissions.Report, error) {
	ctx, cancel := cli.AnswerWithin(ctx, commandTimeout)
	defer cancel()
	if _, err := apiservers.Version(ctx, client); err != nil {
		return permissions.Report{}, fmt.Errorf("ask kube-apiserver for its version: %w", err)
	}
	return permissions.Check(ctx, client, permissions.Accesses(rules)), nil
}
