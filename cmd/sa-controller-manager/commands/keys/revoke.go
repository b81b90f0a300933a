// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/rotation"
)

// newRevokeCommand is for a key that has leaked.
func newRevokeCommand(client cli.ClientFunc) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "revoke KEY-ID",
		Short: "Take a key that has leaked away at once, whoever needs it",
		Long: `Take a key away at once, whoever holds a token of it. The key that signs cannot go: rotate
to another one first. A rotation from the key that is in progress is completed by this.

Bring the ring to the other nodes too: this waits until every kube-apiserver with an
external signer refuses a token that was just signed with the key, and has each fetch the
key set again meanwhile. From then on a token may be accepted for 10 s more where it was
seen before; kubelets remember for two minutes, and watches that are open stay. A
kube-apiserver with key files of its own has to be restarted.

Without --yes nothing is changed, and it is said what would be refused.`,
		Args: cobra.ArbitraryArgs,
	}
	o := newCommandOptions(cmd, client)
	cmd.Flags().BoolVar(&yes, "yes", yes, "Do it.")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := o.validate()
		if len(args) != 1 {
			p = append(p, fmt.Errorf("want the KEY-ID of one key to revoke, got %q", args))
		}
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		return o.act(cmd, func(ctx context.Context, operator *Operator) ([]Pruned, error) {
			return operator.Revoke(ctx, args[0], yes)
		})
	}
	return cmd
}

// Revoke takes a key out of the ring whoever needs it, and returns when nobody accepts it any more.
func (o *Operator) Revoke(ctx context.Context, id string, yes bool) ([]Pruned, error) {
	state, err := o.read()
	if err != nil {
		return nil, err
	}
	key, ok := state.Key(id)
	next, err := rotation.Revoke(state, id, o.Clock.Now(), o.Policy)
	if err != nil {
		return nil, err
	}
	if !ok || !yes {
		dies, err := o.dies(ctx, state, id)
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("nothing was changed: every token signed with key %s would be refused, %s: give --yes to do it", id, dies)
	}
	if err := o.File.Update(state.Generation, func(rotation.State) (rotation.State, error) { return next, nil }); err != nil {
		return nil, err
	}
	return []Pruned{{KeyID: id, Pruned: true}}, o.AwaitRefused(ctx, key)
}

// dies says which tokens that are.
func (o *Operator) dies(ctx context.Context, state rotation.State, id string) (string, error) {
	if key, _ := state.Key(id); key.Role == signing.Next {
		return "and none was signed with it here", nil
	}
	if o.Cluster == nil {
		return "those of Secrets and of Pods (--kubeconfig counts them)", nil
	}
	uses, err := o.Cluster.Uses(ctx, state.Ring())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("those of %d Secrets, and those of Pods that kubelets have not renewed since it was retired", uses.Count(id)), nil
}
