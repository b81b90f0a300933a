// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
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

With --recreate, those that a controller owns are evicted one after the other, as
PodDisruptionBudgets allow, so that their ReplicaSet, ReplicationController,
StatefulSet, DaemonSet or unfinished Job creates them anew. Each time the new Pod is
awaited, and that it is ready if the old one was. Nothing is evicted where a trial Pod
(created with dryRun) gets no account, and it ends at the first new Pod that lacks
something too. Pods that nobody would create anew are listed and left alone.

A Pod that names an account and has no token is uncertain if the account was changed
after the Pod was created: it may have refused the token then. Such Pods are listed,
but do not count, and --recreate leaves them alone.

Exit code: 0 if there is none (with --recreate: none is left), 2 if there are some, and
1 if that could not be found out.`

const missedExamples = `  # In all namespaces.
  sa-controller-manager webhook missed --kubeconfig=admin.conf

  # For programs.
  sa-controller-manager webhook missed --kubeconfig=admin.conf -o json

  # What would be done in one namespace, and then do it.
  sa-controller-manager webhook missed --kubeconfig=admin.conf -n kube-system --recreate --dry-run
  sa-controller-manager webhook missed --kubeconfig=admin.conf -n kube-system --recreate`

// missedOptions are the flags of the command.
type missedOptions struct {
	connection ConnectionOptions
	admission  AdmissionOptions
	namespace  string
	all        bool
	output     outputOptions
	recreate   bool
	dryRun     bool
	wait       time.Duration
}

// newMissedCommand finds Pods that the webhook was not called for. It needs no running
// manager.
func newMissedCommand(client clientFunc) *cobra.Command {
	o := &missedOptions{admission: newAdmissionOptions(), wait: 2 * time.Minute}
	cmd := &cobra.Command{
		Use:     "missed",
		Short:   "List the Pods that were admitted without the webhook, or have them created anew",
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
	cmd.Flags().BoolVar(&o.recreate, "recreate", o.recreate, "Have those Pods created anew that a controller owns.")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", o.dryRun, "With --recreate: evict nothing, say what would be done.")
	cmd.Flags().DurationVar(&o.wait, "wait", o.wait, "With --recreate: how long to wait for each Pod, until a PodDisruptionBudget allows its eviction and then until there is a new one.")
	return cmd
}

func (o *missedOptions) validate() []error {
	p := problems(o.output.validate())
	if o.all && o.namespace != "" {
		p.add("namespace", o.namespace, "and --all-namespaces exclude each other")
	}
	if o.dryRun && !o.recreate {
		p.add("dry-run", o.dryRun, "is for --recreate; without that nothing is changed")
	}
	p.positive("wait", o.wait)
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
	finder := podscan.Finder{Client: connected, Config: config}
	found, err := finder.Find(ctx, o.namespace)
	if err != nil {
		return fmt.Errorf("look for Pods that were admitted without the webhook: %w", err)
	}
	report := newMissedReport(found)
	if o.recreate {
		err = o.recreateAll(ctx, finder, found.Missed, report, stderr)
	}
	// What was done before something failed is told too.
	if printErr := report.print(stdout, o.output.format, time.Now()); printErr != nil {
		return errors.Join(err, printErr)
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(stderr, report.summary(o))
	if report.remain() > 0 {
		return errFindings
	}
	return nil
}

// recreateAll puts into report what becomes of each Pod.
func (o *missedOptions) recreateAll(ctx context.Context, finder podscan.Finder, pods []podscan.Pod, report *missedReport, stderr io.Writer) error {
	recreator := podscan.Recreator{Finder: finder, Patience: o.wait, DryRun: o.dryRun}
	if terminalWidth(stderr) > 0 {
		last := ""
		recreator.Progress = func(pod *podscan.Pod, what string) {
			if line := fmt.Sprintf("%s %s", pod, what); line != last {
				last = line
				fmt.Fprintln(stderr, line)
			}
		}
	}
	done := 0
	return recreator.Run(ctx, pods, func(_ *podscan.Pod, result podscan.Result) {
		report.Missed[done].Result = &result
		done++
	})
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
