// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
)

const pruneExamples = `  # Which retired keys could go?
  sa-controller-manager keys prune --service-account-key-ring=ring.json --kubeconfig=admin.conf --longest-token-lifetime=8760h --dry-run

  # All that nothing needs.
  sa-controller-manager keys prune --service-account-key-ring=ring.json --kubeconfig=admin.conf --longest-token-lifetime=8760h

  # A key that has leaked, although tokens need it.
  sa-controller-manager keys prune --service-account-key-ring=ring.json --key-id=KEY-ID --force`

// lifetimeMissing is why there is no default for a prune.
const lifetimeMissing = "must be given, or a key may go whose tokens live: without --service-account-max-token-expiration kube-apiserver " +
	"issues tokens of any life"

func newPruneCommand(client cli.ClientFunc) *cobra.Command {
	var prune operator.PruneOptions
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove retired keys that nothing needs any more",
		Long: `Remove retired keys. A key stays while a token Secret has its key ID, while a bound token
of it may be valid (--longest-token-lifetime after it was retired), while a kube-apiserver
still signs with it, during the hold-down, and while a --published-issuer lacks one of the
other keys. A key that a kube-apiserver still signs
with counts as retired from now on. That changes the ring although nothing is pruned:
import it on the other nodes.

What verifies with the key ring refuses tokens of a removed key. A kube-apiserver with key
files of its own accepts them until it is restarted without the key.`,
		Example: pruneExamples,
	}
	o := newCommandOptions(cmd, client)
	o.addHoldDown(cmd.Flags())
	o.addPublished(cmd.Flags())
	cmd.Flags().StringArrayVar(&prune.IDs, "key-id", prune.IDs, "Remove the key with this `ID`. May be given several times. Without it, "+
		"every retired key that nothing needs.")
	cmd.Flags().BoolVar(&prune.Force, "force", prune.Force,
		"Remove the keys of --key-id although tokens need them. All these tokens are refused from then on.")
	cmd.Flags().BoolVar(&prune.DryRun, "dry-run", prune.DryRun, "Change nothing, say what would be done.")
	check := func(p *options.Problems) {
		if prune.Force && len(prune.IDs) == 0 {
			p.Add("force", prune.Force, "must come with --key-id: it is for one key at a time")
		}
		if !prune.Force && !cmd.Flags().Changed("longest-token-lifetime") {
			p.Add("longest-token-lifetime", o.policy.TokenLifetime, lifetimeMissing)
		}
		if slices.Contains(prune.IDs, "") {
			p.Add("key-id", "", "must be the ID of a key; keys list has them")
		}
	}
	return o.steps(cmd, check, func(ctx context.Context, operator *operator.Operator) (err error) {
		o.pruned, err = operator.Prune(ctx, prune)
		return err
	})
}

// newRevokeCommand removes a key that has leaked.
func newRevokeCommand(client cli.ClientFunc) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "revoke KEY-ID",
		Short: "Remove a key that has leaked, although tokens need it",
		Long: `Remove a key at once, although tokens need it. The active key cannot be revoked: rotate to
another key first. If a rotation from the revoked key is in progress, it is completed.

On a terminal the command says which tokens will be refused, and asks for confirmation.
Elsewhere it wants --yes.

Import the ring on the other nodes too: the command returns when every kube-apiserver with
an external signer refuses a new token of the key, and makes each of them fetch the key set
meanwhile. kube-apiserver may accept a token that it has seen before for 10 s more, and a
kubelet for two minutes; open watches stay open. Restart a kube-apiserver that has key
files of its own. The private half of a key that another process has (kep740:NAME) is left
there: the command says what to destroy by hand.`,
		Args: cobra.ArbitraryArgs,
	}
	o := newCommandOptions(cmd, client)
	cmd.Flags().BoolVar(&yes, "yes", yes, "Do not ask for confirmation.")
	o.argument = "the KEY-ID of one key to revoke"
	return o.steps(cmd, nil, func(ctx context.Context, operator *operator.Operator) (err error) {
		confirm := func(ctx context.Context, warning string) error {
			return confirmed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), warning)
		}
		if yes {
			confirm = nil
		}
		o.pruned, err = operator.Revoke(ctx, o.args[0], confirm)
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
