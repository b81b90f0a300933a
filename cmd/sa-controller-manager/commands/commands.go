// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package commands is the command line of sa-controller-manager. The root command turns
// flags into options.Options, checks them, and hands them to the manager (package app),
// with what plugs into it (package extras); every other command is a folder below, its flags
// and its work together.
//
// The data path is Main -> command -> options.Options -> Validate -> app.Run. A mistake in
// the command line is reported before anything is logged, opened or started,
// all mistakes together. Nothing here talks to the API server or reads a key.
//
// Logging is process-wide state and is set up exactly once, after validation;
// a process calls Main once. Flag values are printed at log level 1: they are
// paths and names, and no flag may ever carry a secret.
package commands

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	componentversion "k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/app"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/doctor"
	"sa-controller-manager/cmd/sa-controller-manager/commands/keys"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm"
	"sa-controller-manager/cmd/sa-controller-manager/commands/preflight"
	"sa-controller-manager/cmd/sa-controller-manager/commands/tokens"
	"sa-controller-manager/cmd/sa-controller-manager/commands/version"
	"sa-controller-manager/cmd/sa-controller-manager/commands/webhook"
	"sa-controller-manager/cmd/sa-controller-manager/extras"
)

const longDescription = `sa-controller-manager keeps the ServiceAccounts of a Kubernetes cluster and their
tokens: it makes sure that every namespace has its ServiceAccounts and the root CA
in kube-root-ca.crt, and it signs and fills the token Secrets that belong to them. So
kube-controller-manager is run beside it without its serviceaccount-controller,
serviceaccount-token-controller, root-ca-certificate-publisher-controller and
legacy-serviceaccount-token-cleaner-controller, and without its ClusterTrustBundle
publisher from Kubernetes 1.37 on. The admission webhook does to Pods what the
ServiceAccount plugin of kube-apiserver does; it is not called before registration.

Flags that kube-controller-manager has too mean the same here.`

const examples = `  # Beside the kube-controller-manager of a kind or kubeadm control plane, on the node.
  # "sa-controller-manager kubeadm takeover" does it, and turns off there what runs here.
  sa-controller-manager \
    --kubeconfig=/etc/kubernetes/sa-controller-manager/kubeconfig \
    --service-account-private-key-file=/etc/kubernetes/pki/sa.key \
    --root-ca-file=/etc/kubernetes/pki/ca.crt \
    --token-secrets=manual

  # On its own, beside any kube-apiserver: one token Secret for every ServiceAccount.
  sa-controller-manager --kubeconfig=admin.kubeconfig --leader-elect=false \
    --service-account-private-key-file=sa.key

  # With the webhook, for a kube-apiserver with --disable-admission-plugins=ServiceAccount.
  sa-controller-manager --kubeconfig=admin.kubeconfig \
    --service-account-private-key-file=sa.key \
    --token-secrets=manual --webhook-registration=url`

const signerDescription = `Be the external signer of kube-apiserver and nothing else: it signs the tokens that
kube-apiserver issues, with a key ring, so that "sa-controller-manager keys rotate" needs no
restart of kube-apiserver. kube-controller-manager and the ServiceAccount plugin stay as they
are. It has no controller, no webhook and no Lease.

It may run beside the manager on the same host: then that has --service-account-key-ring, too,
and no --external-signer-socket, and its restart takes no socket away.`

const signerExamples = `  # On a control-plane node. kube-apiserver has --service-account-signing-endpoint in place of its two key flags.
  sa-controller-manager signer --service-account-key-ring=/etc/kubernetes/pki/sa-keys/ring.json \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --kubeconfig=/etc/kubernetes/sa-controller-manager/kubeconfig`

// runFunc starts the manager and blocks until ctx ends.
type runFunc func(ctx context.Context, o *options.Options) error

// Main runs the command line args and returns the exit code of the process: 0,
// or 1 for bad flags and for failures at run time, as every Kubernetes
// component does, or 2 for findings. It returns when ctx ends and the manager has
// stopped. Errors go to stderr or, once logging is set up, to the log, and only once.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	run := func(ctx context.Context, o *options.Options) error { return app.Run(ctx, o, extras.New(o)) }
	return execute(ctx, run, args, stdout, stderr)
}

func execute(ctx context.Context, run runFunc, args []string, stdout, stderr io.Writer) int {
	defer klog.Flush()
	return cli.Execute(ctx, newCommand(run, stdout, stderr), args, stderr)
}

// newCommand builds the root command and its sub-commands.
func newCommand(run runFunc, stdout, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:     options.ProgramName,
		Short:   "Keeps the ServiceAccounts of a cluster and signs their tokens",
		Long:    longDescription,
		Example: examples,
	}
	cli.SetUpRoot(cmd, stdout, stderr)
	sets := runs(cmd, secureport.New(), run)
	signer := &cobra.Command{
		Use: "signer", Short: "Only sign for kube-apiserver, with keys that rotate", Long: signerDescription, Example: signerExamples,
	}
	cli.SetHelp(signer, runs(signer, secureport.NewSigner(), run))

	cli.Add(cmd,
		version.NewCommand(), webhook.NewCommand(cli.Connect, app.WriteWebhookManifests), doctor.NewCommand(cli.Connect),
		preflight.NewCommand(cli.ConnectAsManager), keys.NewCommand(cli.Connect), tokens.NewCommand(cli.Connect),
		kubeadm.NewCommand(), signer,
	)
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultCompletionCmd()
	cli.SetHelp(cmd, sets)
	return cmd
}

// runs has cmd run the manager with its flags, which o has, and returns these.
func runs(cmd *cobra.Command, o *options.Options, run runFunc) cliflag.NamedFlagSets {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runManager(cmd, o, run) }
	sets := o.Flags()
	options.AddGlobalFlags(sets.FlagSet("global"))
	for _, name := range sets.Order {
		cmd.Flags().AddFlagSet(sets.FlagSets[name])
	}
	cli.AddChoiceCompletions(cmd)
	return sets
}

// effective returns the flags without those that have no effect here, which are many.
func effective(flags *pflag.FlagSet) *pflag.FlagSet {
	of := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			of.AddFlag(flag)
		}
	})
	return of
}

// runManager is the action of the root command and of "signer".
func runManager(cmd *cobra.Command, o *options.Options, run runFunc) error {
	if asked, err := cmd.Flags().GetBool("version"); err != nil || asked {
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", options.ProgramName, componentversion.Get().GitVersion)
		return err
	}
	if err := cli.InvalidFlags(cmd.CommandPath(), o.Validate()); err != nil {
		return err
	}
	lowered, err := applyLogs(&o.Logs)
	if err != nil {
		return fmt.Errorf("set up logging: %w", err)
	}
	cliflag.PrintFlags(effective(cmd.Flags()))

	ctx := cmd.Context()
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", componentversion.Get().GitVersion)
	if lowered {
		logger.Info("Lowered a log level of --v or --vmodule, because client-go logs tokens above it", "level", maxLogLevel)
	}
	o.Ignored.Warn(logger)
	applyMetrics(&o.Metrics)
	if err := run(ctx, o); err != nil {
		logger.Error(err, "Command failed")
		return cli.ErrReported
	}
	return nil
}
