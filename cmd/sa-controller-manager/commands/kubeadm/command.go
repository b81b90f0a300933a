// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/identity"
)

const description = `Put this program into a control plane of kubeadm or kind, on the node itself, and take it
out again. docs/takeover.md walks both ways.`

const kubeconfigDescription = `Issue a client certificate for system:sa-controller-manager from the cluster's CA and
write a kubeconfig with it. A file that is still good is left alone, byte for byte: one
for the same API server and CA, with more than a third of its time left. So this may run
at every start.

With --apply-permissions, it waits for the API server and applies the roles, bindings and
FlowSchemas of that user too, as a member of system:masters whose certificate is good for
ten minutes and is never written down.`

const kubeconfigExamples = `  # On a control-plane node
  sa-controller-manager kubeadm kubeconfig --apply-permissions

  # For another address than the one in controller-manager.conf
  sa-controller-manager kubeadm kubeconfig --server=https://127.0.0.1:6443`

// NewCommand is the parent with the commands below it.
func NewCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "kubeadm",
		Short: "Put this program into a control plane of kubeadm, or take it out",
		Long:  description,
		Args:  cli.NoArguments,
	}, newKubeconfigCommand(), newTakeoverCommand(), newHandbackCommand())
}

func newKubeconfigCommand() *cobra.Command {
	c := identity.Config{
		CertDir:  "/etc/kubernetes/pki",
		Out:      "/etc/kubernetes/sa-controller-manager.conf",
		From:     "/etc/kubernetes/controller-manager.conf",
		Validity: 365 * 24 * time.Hour,
		Timeout:  4 * time.Minute,
		Clock:    clock.RealClock{},
	}
	cmd := &cobra.Command{
		Use:     "kubeconfig",
		Short:   "Write the kubeconfig that this program runs with",
		Long:    kubeconfigDescription,
		Example: kubeconfigExamples,
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var p options.Problems
			p.Positive("validity", c.Validity)
			p.Positive("timeout", c.Timeout)
			if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
				return err
			}
			c.Say, c.Warn = cmd.OutOrStdout(), cmd.ErrOrStderr()
			progress := cli.NewProgress(cmd.ErrOrStderr())
			defer progress.End()
			c.Progress = progress.Show
			return identity.Ensure(cmd.Context(), c)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&c.CertDir, "cert-dir", c.CertDir, "`directory` with ca.crt and ca.key, the cluster's CA.")
	fs.StringVar(&c.Out, "kubeconfig-out", c.Out, "`file` to write.")
	fs.StringVar(&c.From, "from", c.From, "kubeconfig `file` to take the API server's address and CA from.")
	fs.StringVar(&c.Server, "server", c.Server, "`URL` of the API server, instead of the one in --from. ca.crt vouches for it.")
	fs.DurationVar(&c.Validity, "validity", c.Validity, "How long the certificate is good. It does not outlive the CA.")
	fs.BoolVar(&c.Force, "force", c.Force, "Overwrite a file that is that of another user, or no kubeconfig.")
	fs.BoolVar(&c.ApplyPermissions, "apply-permissions", c.ApplyPermissions, "Wait for the API server and apply what permits the user its work.")
	fs.DurationVar(&c.Timeout, "timeout", c.Timeout, "How long to wait for the API server with --apply-permissions.")
	return cmd
}
