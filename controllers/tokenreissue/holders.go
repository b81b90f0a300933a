// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
)

// Holding says how it stands with a token Secret whose token bears the ID of a retired
// key. Its text is a value of a metric's label, and what people read.
type Holding string

const (
	// NotHeld is that of all other Secrets.
	NotHeld Holding = ""

	// Due means that a new Secret is to be made.
	Due Holding = "due"
	// Filling means that the new Secret has no token of the active key yet.
	Filling Holding = "filling"
	// Switching means that the new Secret has a token of the active key and is not
	// referenced yet.
	Switching Holding = "switching"
	// Replaced means that the new Secret is referenced, and that this one waits until
	// nobody uses it.
	Replaced Holding = "replaced"
	// InPlace means that the token is to be overwritten.
	InPlace Holding = "in-place"

	// Discarding means that it was made to replace a Secret, does not, and is to be deleted:
	// the ring was rolled back before anybody was led to it.
	Discarding Holding = "discarding"

	// UserMade means that no token controller made it, and no annotation says what to do.
	UserMade Holding = "user-made"
	// Never is what its annotation says.
	Never Holding = "never"
	// UnknownMode means that its annotation says something that has no meaning.
	UnknownMode Holding = "unknown-mode"
	// Immutable means that its token cannot be overwritten.
	Immutable Holding = "immutable"
	// Invalid means that it was marked invalid, so its account gets no other token for it.
	Invalid Holding = "invalid"
	// Mismatch means that its account is gone or another one, or that the token is not
	// for it.
	Mismatch Holding = "mismatch"
	// Terminating means that it is being deleted.
	Terminating Holding = "terminating"
	// FilledElsewhere means that it was made to replace a Secret, and that somebody else has
	// filled it with the same key as that one. Another token controller is at work, and one
	// more Secret would be no better.
	FilledElsewhere Holding = "filled-elsewhere"
)

// Holdings lists all but NotHeld, in the order of the work that is left.
func Holdings() []Holding {
	return []Holding{Due, Filling, Switching, InPlace, Discarding, Replaced, UserMade, Never, UnknownMode, Immutable, Invalid, Mismatch, Terminating, FilledElsewhere}
}

// Pending tells whether re-issue has something left to do for the Secret. What is not
// pending goes on its own, or stays until a person acts.
func (h Holding) Pending() bool {
	return h == Due || h == Filling || h == Switching || h == InPlace || h == Discarding
}

// Holder is a token Secret whose token bears the ID of a retired key.
type Holder struct {
	Secret  *tokensecrets.TokenSecret
	Holding Holding
	// Successor is the Secret that replaces it, nil if there is none.
	Successor *tokensecrets.TokenSecret
}

// Holders finds, among all token Secrets of a cluster, those that hold a retired key,
// sorted by namespace and name. account is the ServiceAccount of that name, nil if
// there is none.
func Holders(secrets []*tokensecrets.TokenSecret, account func(cache.ObjectName) *corev1.ServiceAccount, ring Ring) []Holder {
	of := map[cache.ObjectName][]*tokensecrets.TokenSecret{}
	for _, secret := range secrets {
		name := secret.Account()
		of[name] = append(of[name], secret)
	}
	var holders []Holder
	for name, secrets := range of {
		holders = append(holders, holdersOf(account(name), secrets, ring)...)
	}
	slices.SortFunc(holders, func(a, b Holder) int {
		return strings.Compare(a.Secret.Namespace+"/"+a.Secret.Name, b.Secret.Namespace+"/"+b.Secret.Name)
	})
	return holders
}

// holdersOf are those among the Secrets that name one account, which may be nil.
func holdersOf(account *corev1.ServiceAccount, secrets []*tokensecrets.TokenSecret, ring Ring) []Holder {
	var holders []Holder
	pairs := pairsIn(account, secrets, ring)
	for _, secret := range secrets {
		if holder := hold(account, secret, pairs, ring); holder.Holding != NotHeld {
			holders = append(holders, holder)
		}
	}
	slices.SortFunc(holders, func(a, b Holder) int { return tokensecrets.OldestFirst(a.Secret, b.Secret) })
	return holders
}

// hold decides on one Secret that names account.
func hold(account *corev1.ServiceAccount, secret *tokensecrets.TokenSecret, pairs pairs, ring Ring) Holder {
	if secret.Token == nil || !isRetired(ring, secret.Token.KeyID()) {
		return Holder{Secret: secret}
	}
	holder := Holder{Secret: secret, Successor: pairs.successor(secret)}
	holder.Holding = forbidden(account, secret)
	if holder.Holding == NotHeld {
		holder.Holding = progress(account, holder, pairs, ring)
	}
	return holder
}

// forbidden is what forbids that anything is done for a Secret that holds a retired
// key, NotHeld if nothing does. Above all nobody may be given back a token that was
// taken from them.
func forbidden(account *corev1.ServiceAccount, secret *tokensecrets.TokenSecret) Holding {
	switch {
	case secret.Terminating():
		return Terminating
	case secret.InvalidSince():
		return Invalid
	case !fits(account, secret):
		return Mismatch
	}
	switch mode := secret.ReissueMode(); {
	case mode == tokensecrets.ReissueNever:
		return Never
	case mode == tokensecrets.ReissueUserMade:
		return UserMade
	case mode == tokensecrets.ReissueUnknown:
		return UnknownMode
	case mode == tokensecrets.ReissueInPlace && secret.Immutable:
		return Immutable
	}
	return NotHeld
}

// progress is how far the re-issue of a Secret has come that may be re-issued.
func progress(account *corev1.ServiceAccount, holder Holder, pairs pairs, ring Ring) Holding {
	if holder.Secret.ReissueMode() == tokensecrets.ReissueInPlace {
		return InPlace
	}
	successor := holder.Successor
	switch {
	case isSuperfluous(account, holder.Secret, pairs, ring):
		return Discarding
	case successor == nil && filledElsewhere(holder.Secret) && sameKey(holder.Secret, pairs.predecessor(holder.Secret)):
		return FilledElsewhere
	case successor == nil:
		return Due
	case tokensecrets.References(account, successor.Name), successor.InvalidSince():
		return Replaced
	case successor.Token != nil && !successor.Token.Malformed && successor.Token.KeyID() == ring.ActiveID():
		return Switching
	}
	return Filling
}

// sameKey tells whether the token of the Secret and that of its predecessor, if there
// is one, name the same key. That alone accuses nobody: after a rollback we fill a Secret
// with the key of the one that it was to replace.
func sameKey(secret, predecessor *tokensecrets.TokenSecret) bool {
	return predecessor != nil && predecessor.Token != nil && predecessor.Token.KeyID() == secret.Token.KeyID()
}

// filledElsewhere tells whether managedFields name somebody else as who wrote the token.
func filledElsewhere(secret *tokensecrets.TokenSecret) bool {
	return secret.TokenWriter != "" && secret.TokenWriter != meta.FieldManager
}

// fits tells whether the Secret and its token are those of this very account.
func fits(account *corev1.ServiceAccount, secret *tokensecrets.TokenSecret) bool {
	return account != nil && account.DeletionTimestamp == nil && secret.AccountName == account.Name &&
		secret.AccountUID == account.UID && secret.Finding == "" && secret.Token.AccountUID == account.UID
}

// pairs are the Secrets of an account by what they replace.
type pairs struct {
	all []*tokensecrets.TokenSecret
	// successors are the live ones that say what they replace and may yet do so.
	successors map[tokensecrets.Predecessor]*tokensecrets.TokenSecret
}

// pairsIn finds, of several that replace the same Secret, the one that counts: a
// referenced one first, then the oldest. Two are the work of two leaders, or of a
// request whose answer was lost.
func pairsIn(account *corev1.ServiceAccount, secrets []*tokensecrets.TokenSecret, ring Ring) pairs {
	found := pairs{all: secrets}
	for _, secret := range secrets {
		if secret.Predecessor == (tokensecrets.Predecessor{}) || secret.Terminating() || isSpoiled(account, secret, ring) {
			continue
		}
		if found.successors == nil {
			found.successors = map[tokensecrets.Predecessor]*tokensecrets.TokenSecret{}
		}
		if other := found.successors[secret.Predecessor]; other == nil || counts(account, secret, other) {
			found.successors[secret.Predecessor] = secret
		}
	}
	return found
}

// isSpoiled tells whether the key of a new Secret was retired before anybody was led to
// it. Nobody will be. What another token controller has filled counts nevertheless: the
// next one would be filled with the same key.
func isSpoiled(account *corev1.ServiceAccount, secret *tokensecrets.TokenSecret, ring Ring) bool {
	return secret.Token != nil && isRetired(ring, secret.Token.KeyID()) && !filledElsewhere(secret) && !secret.InvalidSince() &&
		account != nil && !tokensecrets.References(account, secret.Name)
}

// successor replaces the Secret; nil if none does.
func (p pairs) successor(secret *tokensecrets.TokenSecret) *tokensecrets.TokenSecret {
	successor := p.successors[tokensecrets.Predecessor{Name: secret.Name, UID: secret.UID}]
	if successor == nil || !successor.Replaces(secret) {
		return nil
	}
	return successor
}

// predecessor is what the Secret replaces, nil if that is gone or there is none.
func (p pairs) predecessor(secret *tokensecrets.TokenSecret) *tokensecrets.TokenSecret {
	i := slices.IndexFunc(p.all, secret.Replaces)
	if i < 0 {
		return nil
	}
	return p.all[i]
}

func counts(account *corev1.ServiceAccount, secret, other *tokensecrets.TokenSecret) bool {
	if account != nil {
		if a, b := tokensecrets.References(account, secret.Name), tokensecrets.References(account, other.Name); a != b {
			return a
		}
	}
	return tokensecrets.OldestFirst(secret, other) < 0
}
