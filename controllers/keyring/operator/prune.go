// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"

	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/check"
)

// Pruned is the outcome for one key.
type Pruned struct {
	KeyID  string `json:"keyID"`
	Pruned bool   `json:"pruned"`
	// Reason says why the key stays.
	Reason string `json:"reason,omitempty"`
}

// Prune removes the retired keys that nothing needs, and says of each other one why it stays.
func (o *Operator) Prune(ctx context.Context, without ...string) ([]Pruned, error) {
	state, err := o.read()
	if err != nil {
		return nil, err
	}
	usages, err := o.usages(ctx, state, without)
	if err != nil {
		return nil, err
	}
	var pruned []Pruned
	for _, key := range state.Retired() {
		prune := func(state ring.State) (ring.State, error) {
			return ring.Prune(state, key.ID, usages[key.ID], o.Clock.Now(), o.Policy)
		}
		if state, err = o.read(); err != nil {
			return pruned, err
		}
		err = o.change(ctx, state, without, prune)
		line := Pruned{KeyID: key.ID, Pruned: err == nil}
		if refusal, ok := errors.AsType[*ring.Refusal](err); ok {
			line.Reason = refusal.Error()
		} else if err != nil {
			return pruned, err
		}
		pruned = append(pruned, line)
	}
	return pruned, nil
}

// usages returns what the cluster says about the use of each retired key, and publishes since when nothing
// is seen to sign with one: the life of its tokens is counted from then on.
func (o *Operator) usages(ctx context.Context, state ring.State, without []string) (map[string]ring.Usage, error) {
	step := check.Changes
	if len(state.Retired()) > 0 {
		step |= check.Uses
	}
	published, err := o.mayChange(ctx, state, step, without, state.Active())
	if err != nil || len(state.Retired()) == 0 {
		return nil, err
	}
	uses, err := o.Cluster.Uses(ctx, state.Ring())
	servers, serversErr := o.Cluster.SigningKeyIDs(ctx)
	fills, fillsErr := o.fills(ctx)
	if err := errors.Join(err, serversErr, fillsErr); err != nil {
		return nil, err
	}
	follow := func(p *hosts.Published) error {
		p.Follow(state, func(id string) bool { return p.Signer(id, without...) != "" || servers[id] != "" }, true, o.Clock.Now())
		published = *p
		return nil
	}
	_ = follow(&published) // a dry run edits nothing
	if err := o.edit(ctx, follow); err != nil {
		return nil, err
	}
	usages := map[string]ring.Usage{}
	for _, key := range state.Retired() {
		signer := cmp.Or(published.Signer(key.ID, without...), servers[key.ID], fills[key.ID])
		usages[key.ID] = ring.Usage{Secrets: uses[key.ID], Signer: signer, Since: published.Followed[key.ID]}
	}
	return usages, nil
}
