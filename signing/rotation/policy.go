// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rotation

import "time"

// Policy is how long things wait. The zero Policy waits for nothing; DefaultPolicy is right for a cluster.
type Policy struct {
	// CacheAge is how old a copy of the key set may be that somebody verifies tokens with. kube-apiserver tells readers of
	// its JWKS to keep it for an hour.
	CacheAge time.Duration
	// TokenLifetime is the longest life of a bound token. With --service-account-extend-token-expiration, which is
	// kube-apiserver's default, that is a year.
	TokenLifetime time.Duration
	// HoldDown is how long a retired key stays after the last change that concerns it, whoever may need it: the time to
	// notice a mistake and to roll back.
	HoldDown time.Duration
}

// DefaultPolicy is what the commands begin with.
func DefaultPolicy() Policy {
	return Policy{CacheAge: time.Hour, TokenLifetime: 365 * 24 * time.Hour, HoldDown: 24 * time.Hour}
}

// PrunableAt is the earliest time at which a retired key may be pruned: no bound token lives and the hold-down has ended.
// Whether a token Secret bears its key ID is another question.
func (p Policy) PrunableAt(key Key) time.Time {
	at := key.RetiredAt.Add(p.TokenLifetime)
	if key.HoldUntil.After(at) {
		return key.HoldUntil
	}
	return at
}

// Usage is what is known about the use of a key.
type Usage struct {
	// Secrets is the number of token Secrets that bear the key ID, or a negative number if nobody counted.
	Secrets int
	// SignsElsewhere says that kube-apiserver still signs bound tokens with the key.
	SignsElsewhere bool
}
