// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

// Pruned is the outcome for one key.
type Pruned struct {
	KeyID  string `json:"keyID"`
	Pruned bool   `json:"pruned"`
	// DryRun means that nothing was changed: a key that is Pruned would be pruned.
	DryRun bool `json:"dryRun,omitempty"`
	// Reason says why the key stays.
	Reason string `json:"reason,omitempty"`
	// Destroy says where the private half of a revoked key is, which no command here can destroy.
	Destroy string `json:"destroy,omitempty"`
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
	var forced []ring.Key
	for _, id := range ids {
		err := o.pruneOne(ctx, id, usages(id), options)
		var refusal *ring.Refusal
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

func (o *Operator) pruneOne(ctx context.Context, id string, usage ring.Usage, options PruneOptions) error {
	prune := func(state ring.State) (ring.State, error) {
		return ring.Prune(state, id, usage, o.Clock.Now(), o.Policy, options.Force)
	}
	state, err := o.read()
	if err != nil {
		return err
	}
	if _, err = prune(state); err == nil && o.Gate != nil && !options.Force {
		err = o.Gate.Prune(ctx, state, id)
	}
	if options.DryRun {
		return err
	}
	if key, ok := state.Key(id); ok && key.Role == signing.Retired && usage.SignsElsewhere {
		// Otherwise the key would be pruned while tokens signed after its retirement are valid.
		if err := o.Update(func(state ring.State) (ring.State, error) {
			return ring.StillSigns(state, id, o.Clock.Now(), o.Policy)
		}); err != nil {
			return err
		}
		return alsoChanged(o.Update(prune))
	}
	if err != nil {
		return err
	}
	return o.File.Update(state.Generation, prune)
}

// alsoChanged adds to a refusal that the ring has changed, so that its copies are out of date.
func alsoChanged(err error) error {
	if refusal, ok := errors.AsType[*ring.Refusal](err); ok {
		refusal.Remedy += "; the key counts as retired from now on, so the ring has changed: copy it to the other nodes, if there are any"
	}
	return err
}

// usages returns what the cluster says about the use of a key, or nothing with force.
func (o *Operator) usages(ctx context.Context, known *signing.Ring, force bool) (func(id string) ring.Usage, error) {
	if force {
		return func(string) ring.Usage { return ring.Usage{Secrets: -1} }, nil
	}
	if o.Cluster == nil {
		return nil, fmt.Errorf("%w; with --force a key is pruned although tokens need it", errNoCluster)
	}
	if err := o.everyAPIServer(ctx, "tokens of a kube-apiserver that still signs with the key are refused"); err != nil {
		return nil, err
	}
	rings, err := consistency.LivePublishedRings(ctx, o.Cluster.Client)
	if err != nil {
		return nil, err
	}
	uses, err := o.Cluster.Uses(ctx, known)
	if err != nil {
		return nil, err
	}
	signers, err := o.Cluster.SigningKeyIDs(ctx)
	if err != nil {
		return nil, err
	}
	return func(id string) ring.Usage {
		signs := slices.ContainsFunc(rings, func(line consistency.PublishedRing) bool { return line.Active() == id })
		signs = signs || slices.Contains(signers, id)
		return ring.Usage{Secrets: uses.Count(id), SignsElsewhere: signs, LastSigned: consistency.LastSigned(rings, id)}
	}, nil
}
