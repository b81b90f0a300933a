// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/signing/ring"
)

// maxKeys is how many keys a schedule publishes at most: everything that verifies reads them all.
const maxKeys = 8

const (
	// longestPause is how long a schedule sleeps at most while nothing is due, and until it tries again to
	// prune a key, for which all token Secrets are read.
	longestPause = time.Hour
	// Short schedules take steps more often, by this part of the interval.
	stepsPerRotation = 10
)

// Schedule is a policy by which keys rotate without an operator.
type Schedule struct {
	// Every is the time from the start of one rotation to the start of the next.
	Every time.Duration
	// Algorithm is the kind of a new key, "" for that of the active key.
	Algorithm string
	// Signers (kep740:NAME) have the new keys if there are any, each one key.
	Signers []string
}

// Step is what a schedule does next.
type Step string

// The steps of a schedule. Each is that of the command.
const (
	StepNone     Step = ""
	StepStart    Step = "start"
	StepActivate Step = "activate"
	StepComplete Step = "complete"
	StepPrune    Step = "prune"
)

// facts are what a plan needs besides the ring.
type facts struct {
	now time.Time
	// unready is why the process must not rotate now, "" if it may.
	unready string
	// rings are the published ones, and difference is how the ring differs from them.
	rings      []consistency.PublishedRing
	difference string
	// tried is when each key was last tried to be pruned.
	tried map[string]time.Time
}

// plan is one step, or what a schedule waits for.
type plan struct {
	step Step
	// keyID is the key to prune.
	keyID string
	// waits is what no step waits for. It is held if the operator has to act.
	waits string
	held  bool
	// at is when to plan again if the ring does not change, zero for soon.
	at time.Time
}

// due returns when the active key is to be replaced, by the latest rotation.
func (s Schedule) due(state ring.State) time.Time {
	since := state.Active().ActivatedAt
	switch state.Phase() {
	case ring.Published:
		return state.Rotation.ActivateNotBefore
	case ring.RolledBack:
		since = state.Rotation.EndedAt // the operator has decided for the previous key
	case ring.Activated, ring.Completed:
		since = state.Rotation.StartedAt
	case ring.Idle:
	}
	return since.Add(s.Every)
}

// next returns the step that a ring is due for. It says nothing of the proofs that the step needs.
func (s Schedule) next(state ring.State, policy ring.Policy, f facts) plan {
	later := f.now.Add(s.pause())
	switch hosts := hostsOf(f.rings); {
	case !state.PausedAt.IsZero():
		since := state.PausedAt.UTC().Format(time.RFC3339)
		return plan{waits: "it is paused since " + since + ": keys rotate resume", held: true, at: later}
	case len(hosts) > 1:
		return plan{waits: fmt.Sprintf("the hosts %s have a key ring each, and only a single one rotates by itself: "+
			"use the commands, and keys import on the other hosts", strings.Join(hosts, ", ")), held: true}
	case f.unready != "":
		return plan{waits: f.unready}
	case f.difference != "":
		return plan{waits: f.difference}
	}
	key, at := s.prunable(state, policy, f)
	if key != "" {
		return plan{step: StepPrune, keyID: key}
	}
	switch state.Phase() {
	case ring.Published:
		return plan{step: StepActivate}
	case ring.Activated:
		return plan{step: StepComplete}
	case ring.Idle, ring.Completed, ring.RolledBack:
	}
	if due := s.due(state); f.now.Before(due) {
		if at.IsZero() || due.Before(at) {
			at = due
		}
		return plan{waits: "the next rotation starts at " + due.UTC().Format(time.RFC3339), at: at}
	}
	if len(state.Keys) >= maxKeys {
		return plan{waits: fmt.Sprintf("%d keys are published, and a schedule publishes no more: "+
			"keys rotate status says what needs the retired ones", len(state.Keys)), held: true, at: later}
	}
	return plan{step: StepStart}
}

// prunable returns a key whose tokens have expired and that was not tried lately, or else when there
// will be one.
func (s Schedule) prunable(state ring.State, policy ring.Policy, f facts) (id string, at time.Time) {
	for _, key := range slices.Backward(state.Retired()) {
		if state.Phase() == ring.Activated && key.ID == state.Rotation.From {
			continue
		}
		from := policy.PrunableAt(key)
		if again := f.tried[key.ID].Add(s.pause()); again.After(from) {
			from = again
		}
		if !f.now.Before(from) {
			return key.ID, time.Time{}
		}
		if at.IsZero() || from.Before(at) {
			at = from
		}
	}
	return "", at
}

// pause is how long the schedule sleeps while nothing is due, and poll while a step waits.
func (s Schedule) pause() time.Duration {
	return max(time.Second, min(longestPause, s.Every/stepsPerRotation))
}

func (s Schedule) poll() time.Duration { return min(pollInterval, s.pause()) }

// hostsOf returns the hosts of the replicas that have published a key ring.
func hostsOf(rings []consistency.PublishedRing) []string {
	var hosts []string
	for _, ring := range rings {
		hosts = append(hosts, ring.Host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
