// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sa-controller-manager/admission"
	"sa-controller-manager/admission/podscan"
	"sa-controller-manager/admission/serviceaccount"
)

const missedDescription = `List the Pods that were admitted without the webhook and that lack what it gives
them: a ServiceAccount, or its token. Such Pods were created before the webhook was
registered, or while it was out. They do not heal, because neither can be added later.

Below the list are the kubectl commands, one for each owner, with which those are created
again that a controller owns, and the Pods that no known controller creates again. Nothing
is changed. See first that a new Pod would be better: /readyz says "registered".

A Pod that names an account and has no token is uncertain if the account was changed
after the Pod was created: it may have refused the token then. Such Pods are listed,
but do not count, and have no command.

Exit code: 0 if there is none, 2 if there are some, and 1 if that could not be found out.`

const missedExamples = `  # In all namespaces.
  sa-controller-manager webhook missed --kubeconfig=admin.conf

  # In one namespace, for programs.
  sa-controller-manager webhook missed --kubeconfig=admin.conf -n kube-system -o json`

// missedOptions are the flags of the command.
type missedOptions struct {
	connection ConnectionOptions
	admission  AdmissionOptions
	namespace  string
	all        bool
	output     outputOptions
}

// newMissedCommand finds Pods that the webhook was not called for. It needs no running
// manager.
func newMissedCommand(client clientFunc) *cobra.Command {
	o := &missedOptions{admission: newAdmissionOptions()}
	cmd := &cobra.Command{
		Use:     "missed",
		Short:   "List the Pods that were admitted without the webhook",
		Long:    missedDescription,
		Example: missedExamples,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := invalidFlags(cmd.CommandPath(), o.validate()); err != nil {
				return err
			}
			return o.run(cmd.Context(), client, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addConnectionFlags(cmd, &o.connection)
	all := pflag.NewFlagSet("admission", pflag.ContinueOnError)
	o.admission.AddFlags(all)
	// What the others are about is decided when a Pod is created.
	for _, name := range []string{"admission-control-config-file", "pod-token"} {
		flag := *all.Lookup(name)
		flag.Usage += " Give what the manager is given."
		cmd.Flags().AddFlag(&flag)
	}
	o.admission.given = cmd.Flags()
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", o.namespace, "Look into this `namespace` only.")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", o.all, "Look into all namespaces, which is the default.")
	o.output.addFlag(cmd, "table", "json", "yaml")
	return cmd
}

func (o *missedOptions) validate() []error {
	p := problems(o.output.validate())
	if o.all && o.namespace != "" {
		p.add("namespace", o.namespace, "and --all-namespaces exclude each other")
	}
	return append(p, o.admission.Validate()...)
}

func (o *missedOptions) run(ctx context.Context, client clientFunc, stdout, stderr io.Writer) error {
	config, err := o.admission.configOfPods()
	if err != nil {
		return err
	}
	connected, err := client(&o.connection)
	if err != nil {
		return err
	}
	found, err := podscan.Finder{Client: connected, Config: config}.Find(ctx, o.namespace)
	if err != nil {
		return fmt.Errorf("look for Pods that were admitted without the webhook: %w", err)
	}
	report := newMissedReport(found, o.connection.Kubeconfig)
	if err := report.print(stdout, o.output.format, time.Now()); err != nil {
		return err
	}
	fmt.Fprintln(stderr, report.summary())
	if len(report.Missed) > 0 {
		return errFindings
	}
	return nil
}

// configOfPods is what the ServiceAccount plugin runs with.
func (o *AdmissionOptions) configOfPods() (serviceaccount.Config, error) {
	configuration, err := admission.ReadConfiguration(o.ConfigFile)
	if err != nil {
		return serviceaccount.Config{}, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	own, err := configuration.For(serviceaccount.Name)
	if err != nil {
		return serviceaccount.Config{}, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	return o.serviceAccountConfig(own)
}
