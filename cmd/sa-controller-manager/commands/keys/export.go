// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/controllers/keyring/ring"
)

// newExportCommand writes the files that kube-apiserver reads.
func newExportCommand() *cobra.Command {
	var directory string
	var newKey bool
	cmd := &cobra.Command{
		Use:   "export --kubeadm",
		Short: "Write the key files that kube-apiserver reads",
		Long: `Write kubeadm's two files: sa.pub with all public keys, that of sa.key first, and then sa.key
with the key that signs. If another process has that, sa.key stays as it is; if that process is
lost, --new-key writes a new RSA key, with which the components sign after "kubeadm handback":
copy both files to the other nodes. Modes and owners stay; a new sa.key gets mode 0600.`,
		Args: cli.NoArguments,
	}
	o := &commandOptions{}
	o.addRing(cmd.Flags())
	cmd.Flags().StringVar(&directory, "kubeadm", directory,
		"Write sa.pub and sa.key in this `directory`, that of kubeadm if none is given.")
	cmd.Flags().Lookup("kubeadm").NoOptDefVal = "/etc/kubernetes/pki"
	cmd.Flags().BoolVar(&newKey, "new-key", newKey,
		"Write a new private key, which is in no ring. The previous sa.key becomes sa.key.previous.")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := o.validateRing()
		if directory == "" {
			p.Add("kubeadm", directory, "must be given, or name a directory")
		}
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		notes, err := operator.Export(ring.At(o.ring), directory, newKey)
		for _, note := range notes {
			cmd.PrintErrln(note)
		}
		return err
	}
	return cmd
}

// newImportCommand imports the ring of another node.
func newImportCommand(client cli.ClientFunc) *cobra.Command {
	var options operator.ImportOptions
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Replace the ring by a newer copy of it, such as that of another node",
		Long: `Replace the ring by a newer copy of it. If there is none, it is made. A copy is refused that has
not come from the ring that is here; with --kubeconfig also one that is older than the ring
that this host has used, or that has come from no ring that is published.

The FILE has private keys. Remove it when it is imported.`,
		Args: cobra.ArbitraryArgs,
	}
	o := newCommandOptions(cmd, client)
	cmd.Flags().BoolVar(&options.Join, "join-fork", options.Join, "The way out of a ring that was changed in two places: keep this one, "+
		"and take the keys that only FILE has as retired ones. Then bring the result to the other place.")
	cmd.Flags().BoolVar(&options.AcceptOlder, "accept-older", options.AcceptOlder,
		"Take FILE although this host has used a newer ring, which no host has any more. Tokens of the keys that FILE lacks are "+
			"refused then.")
	o.argument = "one FILE to import"
	return o.steps(cmd, nil, func(ctx context.Context, operator *operator.Operator) error {
		notes, err := operator.Import(ctx, ring.At(o.args[0]), options)
		return noted(cmd, notes, err)
	})
}
