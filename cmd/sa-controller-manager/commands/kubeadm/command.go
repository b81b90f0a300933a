// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeadm has the commands that add this program to a kubeadm control plane and remove it again. Package takeover does
// the work.
package kubeadm

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/manifests/identity"
	"sa-controller-manager/manifests/takeover"
)

const description = `Add this program to a control plane of kubeadm or kind, on the node itself, and remove it
again. docs/takeover.md describes both.`

const kubeconfigDescription = `Issue a client certificate for system:sa-controller-manager from the cluster's CA, and write
it and a kubeconfig that names it into a directory. A certificate with more than a third of its
time left stays, and so does a kubeconfig that names another certificate.

It signs with the certificate of ca.crt that ca.key belongs to. If the key of the CA is elsewhere,
write a kubeconfig of your own there: the command leaves it as it is.

With --apply-permissions, it also applies the roles, bindings and FlowSchemas of that user, as a
member of system:masters for ten minutes. It removes no rule, and leaves a role with the
annotation rbac.authorization.kubernetes.io/autoupdate: "false" alone.`

// NewCommand returns the parent command with its subcommands.
func NewCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "kubeadm",
		Short: "Add this program to a kubeadm control plane, or remove it",
		Long:  description,
	}, newKubeconfigCommand(), newTakeoverCommand(newPodFlags()), newHandbackCommand(), newRestartCommand(), newStatusCommand())
}

func newKubeconfigCommand() *cobra.Command {
	c := identity.NewConfig()
	watch := false
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Write the kubeconfig that this program runs with",
		Long:  kubeconfigDescription,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var p options.Problems
			p.Positive("validity", c.Validity)
			if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
				return err
			}
			c.Say = cmd.OutOrStdout()
			if watch {
				identity.Watch(cmd.Context(), c)
				return nil
			}
			return identity.Ensure(cmd.Context(), c)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&c.CertDir, "cert-dir", c.CertDir, "The `directory` with ca.crt and, unless the CA is external, ca.key.")
	fs.StringVar(&c.Dir, "out-dir", c.Dir, "The `directory` for the kubeconfig and client.pem, the certificate with its key.")
	fs.StringVar(&c.From, "from", c.From, "Kubeconfig `file` to take the API server's address and CA from.")
	fs.DurationVar(&c.Validity, "validity", c.Validity, "How long the certificate is valid. It does not outlive the CA.")
	fs.BoolVar(&c.ApplyPermissions, "apply-permissions", c.ApplyPermissions, "Apply the roles, bindings and FlowSchemas of the user.")
	fs.BoolVar(&c.CreateSecrets, "create-secrets", c.CreateSecrets, "With --apply-permissions: also the role to create Secrets, for "+
		"--token-secrets=auto and --service-account-key-ring.")
	fs.BoolVar(&c.OnlySigner, "only-signer", c.OnlySigner, "With --apply-permissions: only what \"signer\" needs.")
	fs.BoolVar(&watch, "watch", watch, "Keep running, and do this every four minutes, sooner after a failure.")
	return cmd
}

const restartDescription = `Have the kubelet restart kube-apiserver or kube-controller-manager of this node, and wait until it is
ready again: an annotation of ours in its manifest changes. A handback takes the annotation out, and
restores the manifest byte for byte if nothing else was edited.`

func newRestartCommand() *cobra.Command {
	f, components := newNodeFlags(), []string{takeover.StepAPIServer, takeover.StepControllerManager}
	cmd := &cobra.Command{
		Use:   "restart COMPONENT",
		Short: "Restart kube-apiserver or kube-controller-manager on this node",
		Long:  restartDescription,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(components, args[0]) {
				return cli.InvalidFlags(cmd.CommandPath(), []error{errors.New("want one COMPONENT, of " + strings.Join(components, ", "))})
			}
			f.Steps = args
			return f.run(cmd, takeover.Restart)
		},
	}
	f.addTo(cmd)
	return cmd
}
