// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sa-controller-manager/admission/podscan"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/resolve"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
)

const missedDescription = `List the Pods that were admitted without the webhook and that lack what it would have
added: a ServiceAccount, or its token. Such Pods were created before the webhook was
registered, or while it was off. Neither can be added to an existing Pod.

Below the list are the kubectl commands, one for each owner, that make its controller create
the Pods again, and the Pods that no known controller creates again. The command itself
changes nothing. Check first that /readyz says "registered", or new Pods are no better.

A Pod that names an account and has no token is uncertain if the account was changed
after the Pod was created: it may not have wanted a token before. Such Pods are listed,
but do not count, and have no command.

Exit code: 0 if there are none, 2 if there are some, and 1 after an error.`

const missedExamples = `  # In all namespaces.
  sa-controller-manager webhook missed --kubeconfig=admin.conf

  # In one namespace, for programs.
  sa-controller-manager webhook missed --kubeconfig=admin.conf -n kube-system -o json`

// missedOptions are the flags of the command.
type missedOptions struct {
	connection options.Connection
	admission  options.Admission
	namespace  string
	all        bool
	output     cli.Output
}

// newMissedCommand returns the command that lists the Pods admitted without the webhook.
func newMissedCommand(client cli.ClientFunc) *cobra.Command {
	o := &missedOptions{admission: options.NewAdmission()}
	cmd := &cobra.Command{
		Use:     "missed",
		Short:   "List the Pods that were admitted without the webhook",
		Long:    missedDescription,
		Example: missedExamples,
		Args:    cli.NoArguments,
		RunE: cli.WhenValid(o.validate, func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), client, cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	cli.AddConnectionFlags(cmd, &o.connection)
	// The other flags only affect the creation of a Pod.
	options.AddSome(cmd.Flags(), map[string]string{
		"admission-control-config-file": options.AsManager, "pod-token": options.AsManager,
	}, &o.admission)
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", o.namespace, "Check this `namespace` only.")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", o.all, "Check all namespaces, which is the default.")
	o.output.AddFlag(cmd, "table", "json", "yaml")
	return cmd
}

func (o *missedOptions) validate() []error {
	p := options.Problems(o.output.Validate())
	if o.all && o.namespace != "" {
		p.Add("namespace", o.namespace, "and --all-namespaces exclude each other")
	}
	return append(p, o.admission.Validate()...)
}

func (o *missedOptions) run(ctx context.Context, client cli.ClientFunc, stdout, stderr io.Writer) error {
	config, err := resolve.PluginConfig(&o.admission)
	if err != nil {
		return err
	}
	connected, err := client(&o.connection)
	if err != nil {
		return err
	}
	found, err := podscan.Finder{Client: connected, Config: config}.Find(ctx, o.namespace)
	if err != nil {
		return fmt.Errorf("scan for Pods that were admitted without the webhook: %w", err)
	}
	report := newMissedReport(found, podscan.ClusterFlags(o.connection.Kubeconfig, o.connection.Context))
	if err := report.print(stdout, o.output.Format, time.Now()); err != nil {
		return err
	}
	fmt.Fprintln(stderr, report.summary())
	if len(report.Missed) > 0 {
		return cli.ErrFindings
	}
	return nil
}
