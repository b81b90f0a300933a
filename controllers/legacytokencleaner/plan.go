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

// decision is the result for a token Secret in a run. It is a value of a metric's label.
type decision string

const (
	mark   decision = "mark"
	remove decision = "delete"

	keepYoung        decision = "young"
	keepTerminating  decision = "terminating"
	keepUnreadable   decision = "last-used-invalid" // the label says no date
	keepUsed         decision = "used"
	keepTried        decision = "tried-while-invalid" // a client uses a refused token
	keepNoAccount    decision = "no-account"
	keepUnreferenced decision = "not-referenced" // so a user made it
	keepOptedOut     decision = "opted-out"
	keepOwn          decision = "own"       // of --token-secrets=auto
	keepSuccessor    decision = "successor" // of one that is still there
	keepMounted      decision = "mounted"
	keepMarked       decision = "marked"  // not for long enough
	keepChanged      decision = "changed" // since the decision; the next run decides again
)

func (d decision) acts() bool { return d == mark || d == remove }

// run is one pass over all token Secrets.
type run struct {
	horizon horizon
	// candidates are the Secrets still to decide on, by namespace.
	candidates map[string][]cache.ObjectName
}

// horizon has the times of a run. They do not move while it runs.
type horizon struct {
	now    time.Time
	period time.Duration
	cutoff time.Time // a period ago
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

// observed is the input of plan.
type observed struct {
	secret *tokensecrets.TokenSecret
	// account has the name in the Secret's annotation, with any UID; nil if there is none.
	account *corev1.ServiceAccount
	// own: the account keeps it with --token-secrets=auto.
	own bool
	// mounted: a Pod of the namespace names the Secret.
	mounted bool
	// successor has replaced the Secret (Config.Replacements), nil if none has.
	successor *tokensecrets.TokenSecret
	// predecessor: the Secret replaces one that still exists.
	predecessor bool
}

// plan follows upstream's evaluateSATokens, condition by condition, with three of
// ours added: the opt-out, the account's own Secret, and the successor of one that
// clients may still use. A re-issued Secret needs no reference: it was replaced because a token
// controller created it or its annotation asked for that. When a date is compared with a point in
// time, the whole day counts as recent.
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
		return mark // also if the label is not a date
	case h.recent(since):
		return keepMarked
	}
	return remove
}

// planUse returns why its last use keeps the Secret, "" if it does not. A Secret without the label
// has not been used since tracking began.
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
