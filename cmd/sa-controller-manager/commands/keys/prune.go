// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyrotation"
)

const pruneExamples = `  # Which retired keys could go?
  sa-controller-manager keys prune --service-account-key-ring=ring.json --kubeconfig=admin.conf --longest-token-lifetime=8760h --dry-run

  # All that nothing needs.
  sa-controller-manager keys prune --service-account-key-ring=ring.json --kubeconfig=admin.conf --longest-token-lifetime=8760h

  # A key that has leaked, although tokens need it.
  sa-controller-manager keys prune --service-account-key-ring=ring.json --key-id=KEY-ID --force`

// lifetimeMissing is why there is no default for a prune.
const lifetimeMissing = "must be given, or a key may go whose tokens live: without --service-account-max-token-expiration kube-apiserver issues tokens of any life"

func newPruneCommand(client cli.ClientFunc) *cobra.Command {
	var prune keyrotation.PruneOptions
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
		Args:    cli.NoArguments,
	}
	o := newCommandOptions(cmd, client)
	o.addHoldDown(cmd.Flags())
	o.addPublished(cmd.Flags())
	cmd.Flags().StringArrayVar(&prune.IDs, "key-id", prune.IDs, "Remove the key with this `ID`. May be given several times. Without it, every retired key that nothing needs.")
	cmd.Flags().BoolVar(&prune.Force, "force", prune.Force, "Remove the keys of --key-id although tokens need them. All these tokens are refused from then on.")
	cmd.Flags().BoolVar(&prune.DryRun, "dry-run", prune.DryRun, "Change nothing, say what would be done.")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := options.Problems(o.validate())
		if prune.Force && len(prune.IDs) == 0 {
			p.Add("force", prune.Force, "must come with --key-id: it is for one key at a time")
		}
		if !prune.Force && !cmd.Flags().Changed("longest-token-lifetime") {
			p.Add("longest-token-lifetime", o.policy.TokenLifetime, lifetimeMissing)
		}
		if slices.Contains(prune.IDs, "") {
			p.Add("key-id", "", "must be the ID of a key; keys list has them")
		}
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		return o.act(cmd, func(ctx context.Context, operator *keyrotation.Operator) ([]keyrotation.Pruned, error) {
			return operator.Prune(ctx, prune)
		})
	}
	return cmd
}
