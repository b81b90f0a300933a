// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/keys"
)

func newKeysRollbackCommand(client cli.ClientFunc) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Go back to the key that signed before the rotation",
		Long: `Go back to the former key of the latest rotation: in progress, or completed and the key
not pruned yet. A new key that has never signed is removed. One that has signed is
retired: its tokens stay valid until it is pruned.

kube-apiserver is asked first: whether it still accepts a token of the former key, or,
before a key is removed, whether it signs with that one already.`,
		Args: cli.NoArguments,
	}
	o := newKeysOptions(cmd, client)
	o.addHoldDown(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", force, "Do not ask kube-apiserver. If it does not know the former key any more, every new token is dead; if it signs with a key that is removed, its tokens are.")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cli.InvalidFlags(cmd.CommandPath(), o.validate()); err != nil {
			return err
		}
		return o.act(cmd, func(ctx context.Context, operator *keys.Operator) ([]keys.Pruned, error) {
			return nil, operator.Rollback(ctx, force)
		})
	}
	return cmd
}

const keysPruneExamples = `  # Which retired keys could go?
  sa-controller-manager keys prune --service-account-key-ring=ring.json --kubeconfig=admin.conf --longest-token-lifetime=8760h --dry-run

  # All that nothing needs.
  sa-controller-manager keys prune --service-account-key-ring=ring.json --kubeconfig=admin.conf --longest-token-lifetime=8760h

  # One that has leaked, whoever holds a token of it.
  sa-controller-manager keys prune --service-account-key-ring=ring.json --key-id=KEY-ID --force`

func newKeysPruneCommand(client cli.ClientFunc) *cobra.Command {
	var prune keys.PruneOptions
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove retired keys that nothing needs any more",
		Long: `Remove retired keys. A key stays while a token Secret bears its key ID,
while a bound token that was signed with it may live (--longest-token-lifetime after it
was retired), while kube-apiserver still signs with it, and in the hold-down. A key that
a kube-apiserver still signs with counts as retired from now on, which changes the ring
although nothing is pruned: bring it to the other nodes. Give --apiserver for each of
several, each has a signing key of its own.

Tokens of a removed key are refused by whoever verifies with the key ring. A
kube-apiserver with key files of its own goes on accepting them until it is restarted
without the key.`,
		Example: keysPruneExamples,
		Args:    cli.NoArguments,
	}
	o := newKeysOptions(cmd, client)
	o.addHoldDown(cmd.Flags())
	cmd.Flags().StringArrayVar(&prune.IDs, "key-id", prune.IDs, "Remove the key with this `ID`. May be given several times. Without it, every retired key that nothing needs.")
	cmd.Flags().BoolVar(&prune.Force, "force", prune.Force, "Remove the keys of --key-id whoever needs them. All their tokens are refused from then on.")
	cmd.Flags().BoolVar(&prune.DryRun, "dry-run", prune.DryRun, "Change nothing, say what would be done.")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := options.Problems(o.validate())
		if prune.Force && len(prune.IDs) == 0 {
			p.Add("force", prune.Force, "must come with --key-id: it is for one key at a time")
		}
		if !prune.Force && !cmd.Flags().Changed("longest-token-lifetime") {
			p.Add("longest-token-lifetime", o.policy.TokenLifetime, "must be given, or a key may go whose tokens live: without --service-account-max-token-expiration kube-apiserver issues tokens of any life")
		}
		if slices.Contains(prune.IDs, "") {
			p.Add("key-id", "", "must be the ID of a key; keys list has them")
		}
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		return o.act(cmd, func(ctx context.Context, operator *keys.Operator) ([]keys.Pruned, error) {
			return operator.Prune(ctx, prune)
		})
	}
	return cmd
}
