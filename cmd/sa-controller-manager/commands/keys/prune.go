// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/tokenreissue"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/rotation"
)

const pruneExamples = `  # Which retired keys could go?
  sa-controller-manager keys prune --service-account-key-ring=ring.json --kubeconfig=admin.conf --longest-token-lifetime=8760h --dry-run

  # All that nothing needs.
  sa-controller-manager keys prune --service-account-key-ring=ring.json --kubeconfig=admin.conf --longest-token-lifetime=8760h

  # A key that has leaked, although tokens need it.
  sa-controller-manager keys prune --service-account-key-ring=ring.json --key-id=KEY-ID --force`

func newPruneCommand(client cli.ClientFunc) *cobra.Command {
	var prune PruneOptions
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove retired keys that nothing needs any more",
		Long: `Remove retired keys. A key stays while a token Secret has its key ID, while a bound token
of it may be valid (--longest-token-lifetime after it was retired), while a kube-apiserver
still signs with it, and during the hold-down. A key that a kube-apiserver still signs
with counts as retired from now on. That changes the ring although nothing is pruned:
import it on the other nodes.

What verifies with the key ring refuses tokens of a removed key. A kube-apiserver with key
files of its own accepts them until it is restarted without the key.`,
		Example: pruneExamples,
		Args:    cli.NoArguments,
	}
	o := newCommandOptions(cmd, client)
	o.addHoldDown(cmd.Flags())
	cmd.Flags().StringArrayVar(&prune.IDs, "key-id", prune.IDs, "Remove the key with this `ID`. May be given several times. Without it, every retired key that nothing needs.")
	cmd.Flags().BoolVar(&prune.Force, "force", prune.Force, "Remove the keys of --key-id although tokens need them. All these tokens are refused from then on.")
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
		return o.act(cmd, func(ctx context.Context, operator *Operator) ([]Pruned, error) {
			return operator.Prune(ctx, prune)
		})
	}
	return cmd
}

// Pruned is the outcome for one key.
type Pruned struct {
	KeyID  string `json:"keyID"`
	Pruned bool   `json:"pruned"`
	// DryRun means that nothing was changed: a key that is Pruned would be pruned.
	DryRun bool `json:"dryRun,omitempty"`
	// Reason says why the key stays.
	Reason string `json:"reason,omitempty"`
}

// PruneOptions select keys.
type PruneOptions struct {
	// IDs are the keys to prune. None means every retired key that nothing needs.
	IDs    []string
	Force  bool
	DryRun bool
}

// Prune removes retired keys from the ring. If a named key stays, Prune returns an error, and the keys
// that were pruned before; without names, the result says of each key why it stays. If a
// kube-apiserver still signs with a key, the ring records when that was seen, so it has changed, and
// the refusal says so.
func (o *Operator) Prune(ctx context.Context, options PruneOptions) ([]Pruned, error) {
	state, err := o.read()
	if err != nil {
		return nil, err
	}
	ids := slices.Compact(slices.Sorted(slices.Values(options.IDs)))
	if len(ids) == 0 {
		for _, key := range state.Retired() {
			ids = append(ids, key.ID)
		}
	}
	usages, err := o.usages(ctx, state.Ring(), options.Force)
	if err != nil {
		return nil, err
	}
	var pruned []Pruned
	var forced []rotation.Key
	for _, id := range ids {
		err := o.pruneOne(id, usages(id), options)
		var refusal *rotation.Refusal
		if errors.As(err, &refusal) && len(options.IDs) == 0 {
			pruned = append(pruned, Pruned{KeyID: id, DryRun: options.DryRun, Reason: refusal.Error()})
			continue
		}
		if err != nil {
			return pruned, err
		}
		if key, ok := state.Key(id); ok && options.Force && !options.DryRun {
			forced = append(forced, key)
		}
		pruned = append(pruned, Pruned{KeyID: id, Pruned: true, DryRun: options.DryRun})
	}
	for _, key := range forced {
		if err := o.AwaitRefused(ctx, key); err != nil {
			return pruned, err
		}
	}
	return pruned, nil
}

func (o *Operator) pruneOne(id string, usage rotation.Usage, options PruneOptions) error {
	prune := func(state rotation.State) (rotation.State, error) {
		return rotation.Prune(state, id, usage, o.Clock.Now(), o.Policy, options.Force)
	}
	state, err := o.read()
	if err != nil {
		return err
	}
	if options.DryRun {
		_, err = prune(state)
		return err
	}
	if key, ok := state.Key(id); ok && key.Role == signing.Retired && usage.SignsElsewhere {
		// Otherwise the key would be pruned while tokens signed after its retirement are valid.
		if err := o.update(func(state rotation.State) (rotation.State, error) {
			return rotation.StillSigns(state, id, o.Clock.Now(), o.Policy)
		}); err != nil {
			return err
		}
		return alsoChanged(o.update(prune))
	}
	return o.update(prune)
}

// alsoChanged adds to a refusal that the ring has changed, so that its copies are out of date.
func alsoChanged(err error) error {
	if refusal, ok := errors.AsType[*rotation.Refusal](err); ok {
		refusal.Remedy += "; the key counts as retired from now on, so the ring has changed: copy it to the other nodes, if there are any"
	}
	return err
}

// usages returns what the cluster says about the use of a key, or nothing with force.
func (o *Operator) usages(ctx context.Context, ring *signing.Ring, force bool) (func(id string) rotation.Usage, error) {
	if force {
		return func(string) rotation.Usage { return rotation.Usage{Secrets: -1} }, nil
	}
	if o.Cluster == nil {
		return nil, fmt.Errorf("%w; with --force a key is pruned although tokens need it", errNoCluster)
	}
	if err := o.everyAPIServer(ctx, "tokens of a kube-apiserver that still signs with the key are refused"); err != nil {
		return nil, err
	}
	rings, err := tokenreissue.LivePublishedRings(ctx, o.Cluster.Client)
	if err != nil {
		return nil, err
	}
	uses, err := o.Cluster.Uses(ctx, ring)
	if err != nil {
		return nil, err
	}
	signers, err := o.Cluster.SigningKeyIDs(ctx)
	if err != nil {
		return nil, err
	}
	return func(id string) rotation.Usage {
		signs := slices.ContainsFunc(rings, func(ring tokenreissue.PublishedRing) bool { return ring.Active() == id })
		return rotation.Usage{Secrets: uses.Count(id), SignsElsewhere: signs || slices.Contains(signers, id), LastSigned: tokenreissue.LastSigned(rings, id)}
	}, nil
}
