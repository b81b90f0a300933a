// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/keys"
	"sa-controller-manager/signing/ringfile"
)

const keysExportExamples = `  # The key that signs, for kubeadm's own file.
  sa-controller-manager keys export --service-account-key-ring=ring.json \
    --private --file=/etc/kubernetes/pki/sa.key --replace

  # The public half of one key.
  sa-controller-manager keys export --service-account-key-ring=ring.json --key-id=KEY-ID`

// newKeysExportCommand gives a key to what reads PEM files.
func newKeysExportCommand() *cobra.Command {
	var export keys.Export
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print a key of the ring as PEM, or write it to a file",
		Long: `Print a key of the ring as PEM: the one that signs, or that of --key-id. It is the public
half unless --private asks for the private key. With --file it is written there with mode
0600, and nothing is printed; a file that is there is kept unless --replace is given. "keys
list -o pem" prints all public keys.`,
		Example: keysExportExamples,
		Args:    cli.NoArguments,
	}
	o := &keysOptions{}
	o.addRing(cmd.Flags())
	cmd.Flags().StringVar(&export.KeyID, "key-id", export.KeyID, "`ID` of the key; without it, the key that signs.")
	cmd.Flags().BoolVar(&export.Private, "private", export.Private, "The private key. Whoever reads it can make tokens for any account.")
	cmd.Flags().StringVar(&export.Path, "file", export.Path, "Write a `file` instead of printing. It gets mode 0600 if it is not there yet.")
	cmd.Flags().BoolVar(&export.Replace, "replace", export.Replace, "Replace --file if it is there.")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := options.Problems(o.validateRing())
		if export.Replace && export.Path == "" {
			p.Add("replace", export.Replace, "must come with --file")
		}
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		return (&keys.Operator{File: ringfile.At(o.ring)}).Export(cmd.OutOrStdout(), export)
	}
	return cmd
}

const keysImportExamples = `  # On the second node, with a copy of the first one's ring.
  sa-controller-manager keys import --service-account-key-ring=/etc/kubernetes/pki/sa-keys/ring.json copy.json`

// newKeysImportCommand brings the ring of another node.
func newKeysImportCommand(client cli.ClientFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Replace the ring by a newer copy of it, such as that of another node",
		Long: `Replace the ring by another copy of it, such as that of the node on which it is rotated. A
copy that is older is refused, and so is one that says other things in the same
generation: then the ring was changed in two places. If the ring is not there yet, it is
made. If both are the same, nothing is changed.

The FILE has private keys. Remove it when it is imported.`,
		Example: keysImportExamples,
		Args:    cobra.ArbitraryArgs,
	}
	o := newKeysOptions(cmd, client)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := o.validate()
		if len(args) != 1 {
			p = append(p, fmt.Errorf("want one FILE to import, got %q", args))
		}
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		return o.act(cmd, func(_ context.Context, operator *keys.Operator) ([]keys.Pruned, error) {
			changed, err := operator.Import(args[0])
			if err == nil && !changed {
				fmt.Fprintln(cmd.ErrOrStderr(), "The ring is the same already; nothing was changed.")
			}
			return nil, err
		})
	}
	return cmd
}
