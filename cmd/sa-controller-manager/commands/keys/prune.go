// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	flags "sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
)

func newPruneCommand(client cli.ClientFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove retired keys that nothing needs any more",
		Long: `Remove retired keys. A key stays while a token Secret has its ID, or kube-controller-manager,
which is given one to fill, signs with it; while a bound token may be valid (--longest-token-lifetime
after no host and no kube-apiserver signs with it), and for a day for "keys rollback".

What verifies with the key ring refuses tokens of a removed key. A kube-apiserver with key
files of its own accepts them until it is restarted without the key.`,
	}
	o := newCommandOptions(cmd, client)
	o.asks = true
	o.addWithoutHost(cmd)
	check := func(p *flags.Problems) {
		if !cmd.Flags().Changed("longest-token-lifetime") {
			*p = append(*p, errors.New("--longest-token-lifetime must be given, or a key may go whose tokens are valid: "+
				"without --service-account-max-token-expiration kube-apiserver issues tokens of any life"))
		}
	}
	return o.steps(cmd, check, func(ctx context.Context, op *operator.Operator) (err error) {
		if o.pruned, err = op.Prune(ctx, o.without...); err == nil && len(o.pruned) == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "Nothing to prune: the ring has no retired key.")
		}
		return err
	})
}

// newRevokeCommand takes keys that have leaked out of every ring.
func newRevokeCommand(client cli.ClientFunc) *cobra.Command {
	var yes bool
	var options operator.RevokeOptions
	cmd := &cobra.Command{
		Use:   "revoke KEY-ID...|--active",
		Short: "Have nothing accept keys that have leaked",
		Long: `Have nothing accept keys of any role, for good. If the active key is among them, the next one signs;
if that is named too, a new one. --active may be run again: then it checks what is left to do.

The revocation is published first, and every host with the external signer follows without a
copy. The exit code is 0 when no known kube-apiserver has the keys, and kube-controller-manager,
which is given a Secret to fill, signs with none. On a terminal the command asks for confirmation.`,
		Args: cobra.ArbitraryArgs,
	}
	o := newCommandOptions(cmd, client)
	o.seeks = true
	cmd.Flags().BoolVar(&yes, "yes", yes, "Do not ask for confirmation.")
	cmd.Flags().BoolVar(&options.Active, "active", options.Active, "Revoke the key that the newest published ring signs with.")
	o.addWithoutHost(cmd)
	check := func(p *flags.Problems) {
		if (len(o.args) == 0) != options.Active {
			*p = append(*p, errors.New("want the KEY-ID of each key to revoke, or --active"))
		}
	}
	return o.steps(cmd, check, func(ctx context.Context, op *operator.Operator) error {
		options.IDs, options.Without = o.args, o.without
		options.Confirm = func(ctx context.Context, warning string) error {
			sure, terminal := yes || o.connection.DryRun, true
			if !sure {
				sure, terminal = cli.Ask(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), warning+". Revoke it?")
			}
			switch {
			case sure:
				return nil
			case terminal:
				return errors.New("nothing was changed")
			}
			return fmt.Errorf("nothing was changed: %s; standard input is no terminal: give --yes to revoke the key", warning)
		}
		notes, err := op.Revoke(ctx, options)
		return noted(cmd, notes, err)
	})
}

// noted prints what a step leaves to do.
func noted(cmd *cobra.Command, notes []string, err error) error {
	for _, note := range notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "Note:       %s\n", note)
	}
	return err
}

func newForgetCommand(client cli.ClientFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget HOST",
		Short: "Forget a host that is gone for good, so that no step waits for it",
		Long: `Forget a host that is gone for good: its published key ring and its kube-apiserver. Until then
"rotate", "revoke" and "prune" want to hear from it, however long it is away. A host whose
Node is deleted is forgotten by itself. One that lives is back within a minute.`,
		Args: cobra.ArbitraryArgs,
	}
	o := newCommandOptions(cmd, client)
	o.asks, o.argument = true, "one HOST, as keys list names it"
	return o.steps(cmd, nil, func(ctx context.Context, op *operator.Operator) error { return op.Forget(ctx, o.args[0]) })
}
