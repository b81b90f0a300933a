// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"slices"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/signing/ring"
)

// Rollback makes the previous key active again, or withdraws a next key that does not sign yet. Unless
// it is forced, it asks every kube-apiserver first: it may no longer have the previous key, or may
// sign with the next key already.
func (o *Operator) Rollback(ctx context.Context, force bool) error {
	state, err := o.read()
	if err != nil {
		return err
	}
	rollback := func(state ring.State) (ring.State, error) {
		return ring.Rollback(state, o.Clock.Now(), o.Policy)
	}
	if _, err := rollback(state); err != nil {
		return err
	}
	if !force {
		ask := o.acceptsPrevious
		if state.Phase() == ring.Published {
			ask = o.noneSignsWithNext
		}
		const breaks = "every new token is refused by each kube-apiserver that does not know the previous key, " +
			"and so are tokens of a key that is withdrawn"
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
func (o *Operator) acceptsPrevious(ctx context.Context, state ring.State) error {
	const breaks = "every new token is refused by each kube-apiserver that does not know the previous key any more"
	id := state.Rotation.From
	if o.Cluster == nil {
		return unasked("whether kube-apiserver still accepts key "+id, breaks)
	}
	previous, _ := state.Key(id) // otherwise the transition would have been refused
	err := o.Cluster.Prove(ctx, previous.Private)
	switch {
	case err == nil:
		return nil
	case keyprobe.IsRefusal(err):
		return &ring.Refusal{
			Reason: fmt.Sprintf("key %s, which signed before, cannot sign again yet: %v", id, err),
			Remedy: "give every kube-apiserver its public half again with one more --service-account-key-file " +
				"('keys list -o pem' prints it) and restart it",
			Breaks: breaks,
		}
	}
	return unanswered("whether key "+id+" is accepted", err, breaks)
}

// noneSignsWithNext refuses to withdraw a key that a kube-apiserver signs with.
func (o *Operator) noneSignsWithNext(ctx context.Context, state ring.State) error {
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
	return &ring.Refusal{
		Reason: fmt.Sprintf("kube-apiserver signs bound tokens with key %s already, which is to be withdrawn", id),
		Remedy: "activate it first (keys rotate activate), so that a rollback retires it and its tokens live on",
		Breaks: breaks,
	}
}

func unasked(what, breaks string) error {
	return &ring.Refusal{Reason: "it is not known " + what, Remedy: errNoCluster.Error(), Breaks: breaks}
}

func unanswered(what string, err error, breaks string) error {
	return &ring.Refusal{Reason: fmt.Sprintf("it is not known %s: %v", what, err), Remedy: "try again when it answers", Breaks: breaks}
}
