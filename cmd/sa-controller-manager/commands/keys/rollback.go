// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyrotation"
)

func newRollbackCommand(client cli.ClientFunc) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Go back to the key that signed before the rotation",
		Long: `Go back to the previous key of the latest rotation: in progress, or completed and the key
not pruned yet. A new key that has never signed is removed. One that has signed is
retired: its tokens stay valid until it is pruned.

kube-apiserver is asked first: whether it still accepts a token of the previous key, or,
before a key is removed, whether it signs with that one already.`,
		Args: cli.NoArguments,
	}
	o := newCommandOptions(cmd, client)
	o.addHoldDown(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", force, "Do not ask kube-apiserver. If it does not know the previous key any more, every new token is dead; if it signs with a key that is removed, its tokens are.")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cli.InvalidFlags(cmd.CommandPath(), o.validate()); err != nil {
			return err
		}
		return o.act(cmd, func(ctx context.Context, operator *keyrotation.Operator) ([]keyrotation.Pruned, error) {
			return nil, operator.Rollback(ctx, force)
		})
	}
	return cmd
}
