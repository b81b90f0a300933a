// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/signing"
)

// State is the progress of the re-issue of a token Secret with a retired key. It is a metric
// label and is shown to users.
type State string

const (
	// None is the state of all other Secrets.
	None State = ""
	// Due means that a new Secret must be created.
	Due State = "due"
	// Filling means that the new Secret has no token of the active key yet.
	Filling State = "filling"
	// Switching means that the new Secret has a token of the active key and is not referenced yet.
	Switching State = "switching"
	// Replaced means that the new Secret is referenced, and that this one stays until it is unused.
	Replaced State = "replaced"
	// Discarding means that it was created to replace a Secret and must be deleted, because the ring
	// was rolled back before anything referenced it.
	Discarding State = "discarding"
	// Blocked means that the Secret is not re-issued, for a Reason.
	Blocked State = "blocked"
)

// Reason is why a Secret is blocked.
type Reason string

const (
	// UserMade means that no token controller created it, and that it has no re-issue annotation.
	UserMade Reason = "user-made"
	// Never means that its annotation forbids it.
	Never Reason = "never"
	// UnknownMode means that its annotation has an unknown value.
	UnknownMode Reason = "unknown-mode"
	// Invalid means that it was marked invalid, so its account gets no other token for it.
	Invalid Reason = "invalid"
	// Mismatch means that its account is gone or was recreated, or that the token is not for it.
	Mismatch Reason = "mismatch"
	// Terminating means that it is being deleted.
	Terminating Reason = "terminating"
	// FilledElsewhere means that it was created to replace a Secret, and that another program has
	// filled it with the same key. A second token controller runs, and would fill one more Secret with
	// that key too.
	FilledElsewhere Reason = "filled-elsewhere"
)

// Progress is a state and, if it is Blocked, the reason.
type Progress struct {
	State  State  `json:"state,omitempty"`
	Reason Reason `json:"reason,omitempty"`
}

// String returns the reason if there is one, and the state otherwise.
func (p Progress) String() string {
	if p.Reason != "" {
		return string(p.Reason)
	}
	return string(p.State)
}

// allProgress lists every Progress but that of None, in the order of the work that is left.
func allProgress() []Progress {
	var all []Progress
	for _, state := range []State{Due, Filling, Switching, Discarding, Replaced} {
		all = append(all, Progress{State: state})
	}
	for _, reason := range []Reason{UserMade, Never, UnknownMode, Invalid, Mismatch, Terminating, FilledElsewhere} {
		all = append(all, blocked(reason))
	}
	return all
}

func blocked(reason Reason) Progress { return Progress{State: Blocked, Reason: reason} }

// pending reports whether re-issue has something left to do for the Secret. The others are deleted
// when they are unused, or stay until the user acts.
func (s State) pending() bool {
	return s == Due || s == Filling || s == Switching || s == Discarding
}

// Candidate is a token Secret whose token has the ID of a retired key.
type Candidate struct {
	Progress

	Secret *tokensecrets.TokenSecret
	// Successor is the Secret that replaces it, nil if there is none.
	Successor *tokensecrets.TokenSecret
}

// Candidates returns the token Secrets of a cluster that have a retired key, sorted by namespace and
// name. account returns the ServiceAccount of that name, nil if there is none.
func Candidates(
	secrets []*tokensecrets.TokenSecret, account func(cache.ObjectName) *corev1.ServiceAccount, ring *signing.Ring,
) []Candidate {
	of := map[cache.ObjectName][]*tokensecrets.TokenSecret{}
	for _, secret := range secrets {
		name := secret.Account()
		of[name] = append(of[name], secret)
	}
	var candidates []Candidate
	for name, secrets := range of {
		candidates = append(candidates, observe(account(name), secrets, ring).candidates()...)
	}
	slices.SortFunc(candidates, func(a, b Candidate) int {
		return strings.Compare(a.Secret.ObjectName().String(), b.Secret.ObjectName().String())
	})
	return candidates
}

// observed is an account, which may be nil, with the Secrets that name it.
type observed struct {
	pairs
	ring *signing.Ring
}

func observe(account *corev1.ServiceAccount, secrets []*tokensecrets.TokenSecret, ring *signing.Ring) observed {
	unpaired := observed{pairs: pairs{account: account}, ring: ring}
	return observed{pairs: pairUp(account, secrets, unpaired.isInvalid), ring: ring}
}

// again returns o with the live account and one live Secret.
func (o observed) again(account *corev1.ServiceAccount, newer *tokensecrets.TokenSecret) observed {
	secrets := slices.Clone(o.secrets)
	for i, secret := range secrets {
		if secret.UID == newer.UID {
			secrets[i] = newer
		}
	}
	return observe(account, secrets, o.ring)
}

// isInvalid reports whether the key of a new Secret was retired before anything referenced it. Such
// a Secret is never referenced. One that another program has filled is not spoiled, because the next
// one would get the same key.
func (o observed) isInvalid(secret *tokensecrets.TokenSecret) bool {
	return o.hasRetiredKey(secret) && !filledElsewhere(secret) && !secret.InvalidSince() &&
		o.account != nil && !tokensecrets.References(o.account, secret.Name)
}

func (o observed) hasRetiredKey(secret *tokensecrets.TokenSecret) bool {
	return secret.Token != nil && isRetired(o.ring, secret.Token.KeyID())
}

// candidates are the oldest first.
func (o observed) candidates() []Candidate {
	var candidates []Candidate
	for _, secret := range o.secrets {
		if candidate := o.candidate(secret); candidate.State != None {
			candidates = append(candidates, candidate)
		}
	}
	slices.SortFunc(candidates, func(a, b Candidate) int { return tokensecrets.OldestFirst(a.Secret, b.Secret) })
	return candidates
}

// candidate returns the state of one of the Secrets.
func (o observed) candidate(secret *tokensecrets.TokenSecret) Candidate {
	if !o.hasRetiredKey(secret) {
		return Candidate{Secret: secret}
	}
	candidate := Candidate{Secret: secret, Successor: o.successor(secret)}
	if reason := o.forbidden(secret); reason != "" {
		candidate.Progress = blocked(reason)
	} else {
		candidate.Progress = o.progress(candidate)
	}
	return candidate
}

// forbidden returns why a Secret with a retired key must not be re-issued, or "". Above all no client
// gets a new token in place of an invalidated one.
func (o observed) forbidden(secret *tokensecrets.TokenSecret) Reason {
	switch {
	case secret.Terminating():
		return Terminating
	case secret.InvalidSince():
		return Invalid
	case !o.fits(secret):
		return Mismatch
	}
	return forbiddenByMode(secret)
}

// Values of the annotation tokensecrets.ReissueAnnotation. modeSideBySide creates a new Secret and
// keeps the old one for its clients.
const (
	modeSideBySide = "side-by-side"
	modeNever      = "never"
)

// forbiddenByMode returns why the annotation, or its absence from a user's Secret, forbids the
// re-issue, or "". That an account references a Secret does not prove that a token controller created
// it, since users write such references by hand; nor does a token, since those of users are filled as
// well.
func forbiddenByMode(secret *tokensecrets.TokenSecret) Reason {
	switch secret.Reissue {
	case modeSideBySide:
		return ""
	case modeNever:
		return Never
	case "":
		if secret.AutoCreated() || secret.CreatedByController {
			return ""
		}
		return UserMade
	default:
		return UnknownMode
	}
}

// isPrivate reports whether a user made the Secret, and the account does not name it: its user alone knows
// it by its name.
func isPrivate(account *corev1.ServiceAccount, secret *tokensecrets.TokenSecret) bool {
	return !secret.AutoCreated() && !secret.CreatedByController && !tokensecrets.References(account, secret.Name)
}

// progress returns that of a Secret that may be re-issued.
func (o observed) progress(candidate Candidate) Progress {
	secret, successor := candidate.Secret, candidate.Successor
	switch {
	case o.isSuperfluous(secret):
		return Progress{State: Discarding}
	case successor == nil && filledElsewhere(secret) && sameKey(secret, o.predecessor(secret)):
		return blocked(FilledElsewhere)
	case successor == nil:
		return Progress{State: Due}
	case tokensecrets.References(o.account, successor.Name), successor.InvalidSince():
		return Progress{State: Replaced}
	case successor.Token != nil && !successor.Token.Malformed && successor.Token.KeyID() == o.ring.ActiveID():
		if isPrivate(o.account, secret) {
			return Progress{State: Replaced}
		}
		return Progress{State: Switching}
	}
	return Progress{State: Filling}
}

// sameKey reports whether the tokens of the Secret and of its predecessor, if there is one, name the
// same key. That alone does not prove a second token controller: after a rollback this one fills a
// new Secret with the key of the old one.
func sameKey(secret, predecessor *tokensecrets.TokenSecret) bool {
	return predecessor != nil && predecessor.Token != nil && predecessor.Token.KeyID() == secret.Token.KeyID()
}

// filledElsewhere reports whether managedFields name another program as the token's writer.
func filledElsewhere(secret *tokensecrets.TokenSecret) bool {
	return secret.TokenWriter != "" && secret.TokenWriter != meta.FieldManager
}

// fits reports whether the Secret and its token are those of this very account.
func (o observed) fits(secret *tokensecrets.TokenSecret) bool {
	return o.account != nil && o.account.DeletionTimestamp == nil && secret.AccountName == o.account.Name &&
		secret.AccountUID == o.account.UID && secret.Finding == "" && secret.Token.AccountUID == o.account.UID
}
