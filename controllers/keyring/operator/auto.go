// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/published"
	"sa-controller-manager/signing/ring"
)

// gateInterval is how often a Gate is asked to look. It may look less often.
const gateInterval = 5 * time.Second

// Outcome is what one pass of a schedule has done.
type Outcome struct {
	// Did says which step was taken, "" if none.
	Did string
	// Waits says what the next step waits for, and Held that an operator has to do something.
	Waits string
	Held  bool
	// Due is when the active key is to be replaced, and Again when the next pass is useful.
	Due   time.Time
	Again time.Duration
	// Published is what the gate has seen.
	Published []published.Seen
}

// Auto takes one step of a schedule if it is due and its proof holds. unready is why this process must
// not rotate now, "" if it may. tried is when each key was last tried to be pruned; Auto changes it. A
// Cluster is required.
//
// A command that changes the ring meanwhile wins: the step is not taken.
func (o *Operator) Auto(ctx context.Context, s Schedule, unready string, tried map[string]time.Time) (Outcome, error) {
	state, err := o.read()
	if err != nil {
		return Outcome{}, err
	}
	rings, err := consistency.LivePublishedRings(ctx, o.Cluster.Client)
	if err != nil {
		return Outcome{}, err
	}
	var seen []published.Seen
	if o.Gate != nil {
		seen = o.Gate.Look(ctx, state) // all the time, because it remembers how long caches keep what was there
	}
	now := o.Clock.Now()
	plan := s.next(state, o.Policy, facts{
		now: now, unready: unready, rings: rings, difference: consistency.Difference(state, rings), tried: tried,
	})
	outcome := Outcome{Waits: plan.waits, Held: plan.held, Due: s.due(state), Again: s.poll(), Published: seen}
	if plan.step == StepNone {
		if !plan.at.IsZero() {
			outcome.Again = min(s.pause(), max(plan.at.Sub(now), time.Millisecond))
		}
		if o.Gate != nil {
			outcome.Again = min(outcome.Again, gateInterval)
		}
		return outcome, nil
	}
	if plan.step == StepPrune {
		tried[plan.keyID] = now
	}
	only := *o
	only.generation = state.Generation
	outcome.Did, err = only.take(ctx, s, plan, state, rings)
	if err != nil {
		return outcome.refused(plan.step, err)
	}
	if state, err = o.File.Read(); err == nil {
		outcome.Due = s.due(state)
	}
	return outcome, err
}

// refused is the outcome of a step that was not taken. That a retired key is needed is no trouble.
func (u Outcome) refused(step Step, err error) (Outcome, error) {
	u.Did, u.Waits = "", err.Error()
	if refusal, ok := errors.AsType[*ring.Refusal](err); ok {
		u.Held = step != StepPrune && !refusal.Done && !refusal.Later && refusal.Until.IsZero()
		return u, nil
	}
	if _, waits := errors.AsType[*notAcceptedError](err); waits {
		return u, nil
	}
	if _, changed := errors.AsType[*ring.StaleError](err); changed {
		return u, nil
	}
	return u, err
}

// take takes a step, and says what it has done.
func (o *Operator) take(ctx context.Context, s Schedule, plan plan, state ring.State, rings []consistency.PublishedRing) (
	did string, err error,
) {
	switch plan.step {
	case StepStart:
		_, err = o.Start(ctx, func(signing.PublicKey) bool { return false }, func(present signing.PublicKey) (*signing.PrivateKey, error) {
			return o.newKey(ctx, s, state, present)
		})
		return "published a new key, which does not sign yet", err
	case StepActivate:
		return "activated key " + state.Rotation.To, o.Activate(ctx, ActivateOptions{})
	case StepComplete:
		if err := o.followed(ctx, state, rings); err != nil {
			return "", err
		}
		return "completed the rotation to key " + state.Rotation.To, o.Complete(ctx, ActivateOptions{})
	case StepPrune:
		_, err = o.Prune(ctx, PruneOptions{IDs: []string{plan.keyID}})
		return "pruned key " + plan.keyID, err
	case StepNone:
	}
	return "", nil
}

// newKey generates the key of a rotation, or pins that of the first signer whose key was not used yet.
func (o *Operator) newKey(ctx context.Context, s Schedule, state ring.State, present signing.PublicKey) (*signing.PrivateKey, error) {
	if len(s.Signers) == 0 {
		return signing.GenerateKey(cmp.Or(s.Algorithm, signing.KindOf(present)))
	}
	for _, signer := range s.Signers {
		if slices.ContainsFunc(state.Keys, func(key ring.Key) bool { return key.Signer == signer && !key.PublicOnly }) {
			continue
		}
		pair, err := o.Pin(ctx, signer, false)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", signer, err)
		}
		if id := pair.Public().ID; !slices.Contains(state.Pruned, id) && !slices.Contains(state.Withdrawn, id) {
			return pair, nil
		}
	}
	return nil, &ring.Refusal{
		Reason: "each of the signers has a key that is or was in the ring",
		Remedy: "name one with a new key (--rotate-key)",
	}
}

// followed returns nil if every kube-apiserver and every replica signs with the active key.
func (o *Operator) followed(ctx context.Context, state ring.State, rings []consistency.PublishedRing) error {
	if err := o.everyAPIServer(ctx, ""); err != nil {
		return err
	}
	signers, err := o.Cluster.SigningKeyIDs(ctx)
	if err != nil {
		return err
	}
	for _, ring := range rings {
		signers = append(signers, ring.Active())
	}
	for _, id := range signers {
		if id != state.Active().ID {
			return &ring.Refusal{
				Reason: fmt.Sprintf("a kube-apiserver or a replica still signs with key %s", id),
				Remedy: "wait until it follows", Later: true,
			}
		}
	}
	return nil
}
