// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/signing/rotation"
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
		return o.act(cmd, func(ctx context.Context, operator *Operator) ([]Pruned, error) {
			return nil, operator.Rollback(ctx, force)
		})
	}
	return cmd
}

// Rollback makes the previous key active again, or withdraws a next key that does not sign yet. Unless
// it is forced, it asks every kube-apiserver first: it may no longer have the previous key, or may
// sign with the next key already.
func (o *Operator) Rollback(ctx context.Context, force bool) error {
	state, err := o.read()
	if err != nil {
		return err
	}
	rollback := func(state rotation.State) (rotation.State, error) {
		return rotation.Rollback(state, o.Clock.Now(), o.Policy)
	}
	if _, err := rollback(state); err != nil {
		return err
	}
	if !force {
		ask := o.acceptsPrevious
		if state.Phase() == rotation.Published {
			ask = o.noneSignsWithNext
		}
		const breaks = "every new token is refused by each kube-apiserver that does not know the previous key, and so are tokens of a key that is withdrawn"
		if err := o.everyAPIServer(ctx, breaks); err != nil {
			return err
		}
		if err := ask(ctx, state); err != nil {
			return err
		}
	}
	// Generation makes sure that the answers are about this key.
	return o.File.Update(state.Generation, rollback)
}

// acceptsPrevious refuses to go back to a key that a kube-apiserver does not accept.
func (o *Operator) acceptsPrevious(ctx context.Context, state rotation.State) error {
	const breaks = "every new token is refused by each kube-apiserver that does not know the previous key any more"
	id := state.Rotation.From
	if o.Cluster == nil {
		return unasked("whether kube-apiserver still accepts key "+id, breaks)
	}
	previous, _ := state.Key(id) // otherwise the transition would have been refused
	err := o.Cluster.Prove(ctx, previous.Pair.Private())
	switch {
	case err == nil:
		return nil
	case keyprobe.IsRefusal(err):
		return &rotation.Refusal{
			Reason: fmt.Sprintf("key %s, which signed before, cannot sign again yet: %v", id, err),
			Remedy: "give every kube-apiserver its public half again with one more --service-account-key-file ('keys list -o pem' prints it) and restart it",
			Breaks: breaks,
		}
	}
	return unanswered("whether key "+id+" is accepted", err, breaks)
}

// noneSignsWithNext refuses to withdraw a key that a kube-apiserver signs with.
func (o *Operator) noneSignsWithNext(ctx context.Context, state rotation.State) error {
	const breaks = "every token that a kube-apiserver has signed with the next key is refused by everything that verifies with the key ring"
	id := state.Rotation.To
	question := "whether kube-apiserver signs with key " + id + " already"
	if o.Cluster == nil {
		return unasked(question, breaks)
	}
	signers, err := o.Cluster.SigningKeyIDs(ctx)
	if err != nil {
		return unanswered(question, err, breaks)
	}
	if !slices.Contains(signers, id) {
		return nil
	}
	return &rotation.Refusal{
		Reason: fmt.Sprintf("kube-apiserver signs bound tokens with key %s already, which is to be withdrawn", id),
		Remedy: "activate it first (keys rotate activate), so that a rollback retires it and its tokens live on",
		Breaks: breaks,
	}
}

func unasked(what, breaks string) error {
	return &rotation.Refusal{Reason: "it is not known " + what, Remedy: errNoCluster.Error(), Breaks: breaks}
}

func unanswered(what string, err error, breaks string) error {
	return &rotation.Refusal{Reason: fmt.Sprintf("it is not known %s: %v", what, err), Remedy: "try again when it answers", Breaks: breaks}
}
