// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
)

const pruneExamples = `  # Which retired keys could go?
  sa-controller-manager keys prune --service-account-key-ring=ring.json --kubeconfig=admin.conf --longest-token-lifetime=8760h --dry-run`

func newPruneCommand(client cli.ClientFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove retired keys that nothing needs any more",
		Long: `Remove retired keys. A key stays while a token Secret has its key ID, while a bound token of
it may be valid (--longest-token-lifetime after it was first seen that no host and no
kube-apiserver signs with it), for a day while "keys rollback" may go back to it, and while
a place where the keys are published lacks the active key.

What verifies with the key ring refuses tokens of a removed key. A kube-apiserver with key
files of its own accepts them until it is restarted without the key.`,
		Example: pruneExamples,
	}
	o := newCommandOptions(cmd, client)
	o.asks = true
	o.addWithoutHost(cmd)
	check := func(p *options.Problems) { o.needsLifetime(p, cmd) }
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
	cmd := &cobra.Command{
		Use:   "revoke KEY-ID...",
		Short: "Have nothing accept keys that have leaked",
		Long: `Take keys of any role out of the ring at once and for good: they do not come back by a
verification key file, a copy, a backup or another ring. If the active key is among them,
the next one signs; if that is named too, a new one. "keys list" prints the command for a
file that has leaked. It may be run again, and then only checks what is left to do.

On a terminal the command says which tokens will be refused, and asks for confirmation.
Elsewhere it wants --yes.

The file is changed first. Through the published rings every host with the external signer
follows without a copy, and the command returns when no kube-apiserver has the keys. It
names those that do: one with key files has them until it is restarted without them.
kube-apiserver may accept a token that it has seen before for 10 s more, and a kubelet for
two minutes; open watches stay open. Token Secrets of the keys are filled again. What is
left to do, and how long relying parties go on accepting the keys, is printed.`,
		Args: cobra.ArbitraryArgs,
	}
	o := newCommandOptions(cmd, client)
	cmd.Flags().BoolVar(&yes, "yes", yes, "Do not ask for confirmation.")
	o.addWithoutHost(cmd)
	check := func(p *options.Problems) {
		if len(o.args) == 0 {
			*p = append(*p, errors.New("want the KEY-ID of each key to revoke"))
		}
	}
	return o.steps(cmd, check, func(ctx context.Context, op *operator.Operator) error {
		confirm := func(ctx context.Context, warning string) error {
			if o.connection.DryRun {
				fmt.Fprintf(cmd.ErrOrStderr(), "In a dry run %s.\n", warning)
				return nil
			}
			return confirmed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), warning)
		}
		if yes && !o.connection.DryRun {
			confirm = nil
		}
		notes, err := op.Revoke(ctx, o.args, confirm, o.without...)
		for _, note := range notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "Note:       %s\n", note)
		}
		return err
	})
}

// confirmed asks the user on a terminal. Its error says that nothing was changed.
func confirmed(ctx context.Context, stdin io.Reader, stderr io.Writer, warning string) error {
	yes, terminal := cli.Ask(ctx, stdin, stderr, warning+". Revoke it?")
	switch {
	case !terminal:
		return fmt.Errorf("nothing was changed: %s; standard input is no terminal: give --yes to revoke the key", warning)
	case yes:
		return nil
	}
	return errors.New("nothing was changed")
}
