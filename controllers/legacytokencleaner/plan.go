// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/tokensecrets"
)

// dateFormat is that of the labels, which count days of UTC.
const dateFormat = time.DateOnly

// decision is what becomes of a token Secret in a round. Its text is a value of a
// metric's label.
type decision string

const (
	mark   decision = "mark"
	remove decision = "delete"

	keepYoung        decision = "young"
	keepTerminating  decision = "terminating"
	keepUnreadable   decision = "last-used-invalid" // the label says no date
	keepUsed         decision = "used"
	keepTried        decision = "tried-while-invalid" // somebody has a refused token
	keepNoAccount    decision = "no-account"
	keepUnreferenced decision = "not-referenced" // so a user made it
	keepOptedOut     decision = "opted-out"
	keepOwn          decision = "own"       // of --token-secrets=auto
	keepSuccessor    decision = "successor" // of one that is still there
	keepMounted      decision = "mounted"
	keepMarked       decision = "marked"  // not for long enough
	keepLimited      decision = "limited" // as many are marked as a round may
	keepChanged      decision = "changed" // since it was decided on; the next round looks again
)

func (d decision) acts() bool { return d == mark || d == remove }

// round is one run over all token Secrets.
type round struct {
	// horizon is that of most Secrets, and replaced that of re-issued ones.
	horizon, replaced horizon
	// marks is how many may still be marked, and unmarked how many were not for that reason.
	marks, unmarked int
	// candidates are what is still to be decided, by namespace.
	candidates map[string][]cache.ObjectName
}

// idle is why nothing at all may be decided.
func (r round) idle() idleness {
	if r.replaced.idle == working {
		return working
	}
	return r.horizon.idle
}

// of is the horizon that counts for a Secret.
func (r round) of(o observed) horizon {
	if o.successor != nil {
		return r.replaced
	}
	return r.horizon
}

// plan is that of the horizon that counts. One that came to count after the survey, and
// is idle, is for the next round.
func (r round) plan(o observed) decision {
	if r.of(o).idle != working {
		return keepChanged
	}
	return r.of(o).plan(o)
}

// horizon is the time a round works with, however long it takes.
type horizon struct {
	now    time.Time
	period time.Duration
	cutoff time.Time // a period ago
	// idle is why nothing may be decided.
	idle idleness
}

func newHorizon(now time.Time, period time.Duration) horizon {
	now = now.UTC()
	return horizon{now: now, period: period, cutoff: now.Add(-period)}
}

func (h horizon) today() string { return h.now.Format(dateFormat) }

// recent reports whether a day is the cutoff's or a later one.
func (h horizon) recent(date string) bool { return date >= h.cutoff.Format(dateFormat) }

func isDate(text string) bool {
	_, err := time.Parse(dateFormat, text)
	return err == nil
}

// observed is what plan decides from.
type observed struct {
	secret *tokensecrets.TokenSecret
	// account is the one of the Secret's namespace with the name that the Secret
	// says, whatever its UID; nil if there is none.
	account *corev1.ServiceAccount
	// own: it is the one that the account keeps with --token-secrets=auto.
	own bool
	// mounted: a Pod of the namespace names the Secret.
	mounted bool
	// successor has replaced the Secret (tokensecrets.Pairs.Replacement), nil if none has.
	successor *tokensecrets.TokenSecret
	// predecessor: the Secret was made to replace one that is still there.
	predecessor bool
}

// plan follows upstream's evaluateSATokens, condition by condition, with three of
// ours added: the opt-out, the account's own Secret, and the successor of one that
// others may still use. A re-issued Secret needs no reference: that it was replaced
// proves that a token controller or its annotation has given it away. Where a date is
// compared with a moment, the whole day counts as recent.
func (h horizon) plan(o observed) decision {
	switch {
	case !o.secret.CreationTimestamp.Time.Before(h.cutoff):
		return keepYoung
	case o.secret.Terminating():
		return keepTerminating
	}
	if kept := h.planUse(o.secret); kept != "" {
		return kept
	}
	switch {
	case !o.secret.BelongsTo(o.account):
		return keepNoAccount
	case o.successor == nil && !tokensecrets.References(o.account, o.secret.Name):
		return keepUnreferenced
	case o.secret.Keep:
		return keepOptedOut
	case o.own:
		return keepOwn
	case o.predecessor:
		return keepSuccessor
	case o.mounted:
		return keepMounted
	}
	since := o.secret.Labels[tokensecrets.InvalidSinceLabel]
	switch {
	case !isDate(since):
		return mark // also what is marked with something that is no date
	case h.recent(since):
		return keepMarked
	}
	return remove
}

// planUse says why the Secret is kept for its use, "" if it is not. A Secret
// without the label has not been used since tracking began.
func (h horizon) planUse(secret *tokensecrets.TokenSecret) decision {
	lastUsed, used := secret.Labels[tokensecrets.LastUsedLabel]
	since := secret.Labels[tokensecrets.InvalidSinceLabel]
	switch {
	case !used:
		return ""
	case !isDate(lastUsed):
		return keepUnreadable
	case !h.recent(lastUsed):
		return ""
	case isDate(since) && lastUsed > since:
		return keepTried
	}
	return keepUsed
}
