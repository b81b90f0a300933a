// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"sa-controller-manager/signing"
)

// RotateEveryFlag turns on rotation by policy.
const RotateEveryFlag = "rotate-every"

// Rotation has the flags of rotation by policy.
type Rotation struct {
	// Every is the interval, 0 for no rotation by policy.
	Every time.Duration
	// Algorithm is the kind of a new key, "" for that of the present one.
	Algorithm string
	// Keys are the processes that have the new keys (kep740:NAME).
	Keys []string
	// Policy is how long each step waits.
	Policy RotationPolicy
}

// RotationPolicy has the fields of ring.Policy.
type RotationPolicy struct{ CacheAge, TokenLifetime, HoldDown time.Duration }

// NewRotation returns the defaults of the group, which are right for a cluster.
func NewRotation() Rotation {
	return Rotation{Policy: RotationPolicy{CacheAge: time.Hour, TokenLifetime: 365 * 24 * time.Hour, HoldDown: 24 * time.Hour}}
}

// AddFlags binds the group to fs.
func (o *Rotation) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Every, RotateEveryFlag, o.Every,
		"Rotate to a new signing key this often, such as 2160h: the leader takes the steps of \"keys rotate\" and \"keys prune\", each only if "+
			"its proof holds. 0 leaves them to you. Needs --service-account-key-ring and --external-signer-socket, and one control-plane node.")
	fs.StringVar(&o.Algorithm, "rotate-algorithm", o.Algorithm,
		"Kind of the new keys of --rotate-every; that of the present one if not given.")
	fs.StringSliceVar(&o.Keys, "rotate-key", o.Keys,
		"One `kep740:NAME` for each process with a new key for --rotate-every, instead of having keys made. "+
			"The first one whose key was not used yet is taken.")
	fs.DurationVar(&o.Policy.CacheAge, "cache-age", o.Policy.CacheAge,
		"With --rotate-every, how long a new key is published before it may sign: the greatest age of a cached copy of the key set.")
	fs.DurationVar(&o.Policy.HoldDown, "hold-down", o.Policy.HoldDown,
		"With --rotate-every, how long a key is kept at least after it stopped signing, so that it can be rolled back to.")
	fs.DurationVar(&o.Policy.TokenLifetime, "longest-token-lifetime", o.Policy.TokenLifetime,
		"With --rotate-every, how long a key is kept after it stopped signing because its bound tokens may live. "+
			"Less than --external-signer-max-token-expiration breaks tokens.")
	fs.VisitAll(func(f *pflag.Flag) { SetOrigin(fs, ours, f.Name) })
}

// Validate returns every problem of the group but those of the policy, which "keys auto" has in common
// with other commands.
func (o *Rotation) Validate() []error {
	var p Problems
	if o.Every == 0 {
		if o.Algorithm != "" || len(o.Keys) > 0 {
			p.Add(RotateEveryFlag, o.Every, "must be given with --rotate-algorithm and --rotate-key")
		}
		return p
	}
	if least := o.Policy.CacheAge + o.Policy.HoldDown; o.Every < max(least, time.Second) {
		p.Add(RotateEveryFlag, o.Every, fmt.Sprintf("must be at least --cache-age and --hold-down together (%s), "+
			"so that a rotation can be seen and rolled back before the next one", least))
	}
	if o.Algorithm != "" {
		p.OneOf("rotate-algorithm", o.Algorithm, signing.KeyKinds()...)
	}
	if o.Algorithm != "" && len(o.Keys) > 0 {
		p.Add("rotate-algorithm", o.Algorithm, "excludes --rotate-key: the processes have the keys already")
	}
	for i, key := range o.Keys {
		if _, err := signing.ParseSigner(key); err != nil {
			p.Add("rotate-key", key, "must be kep740:NAME, with a NAME of lower-case letters, digits, \"-\" and \".\", 63 at most")
		}
		if slices.Contains(o.Keys[:i], key) {
			p.Add("rotate-key", key, "must not be given twice")
		}
	}
	return p
}

// validateRotation checks the policy, and the flags of other groups that rotation by policy needs.
func (o *Options) validateRotation() []error {
	var p Problems
	p.NotNegative("cache-age", o.Rotation.Policy.CacheAge)
	p.NotNegative("hold-down", o.Rotation.Policy.HoldDown)
	p.NotNegative("longest-token-lifetime", o.Rotation.Policy.TokenLifetime)
	if o.Rotation.Every == 0 {
		return p
	}
	if o.Keys.KeyRing == "" {
		p.Add(RotateEveryFlag, o.Rotation.Every, "needs --service-account-key-ring: only a ring keeps the previous keys")
	}
	if o.ExternalSigner.Socket == "" {
		p.Add(RotateEveryFlag, o.Rotation.Every, "needs --external-signer-socket: without it kube-apiserver never learns the next key")
	}
	if len(o.Rotation.Keys) > 0 && o.Keys.KeySockets == "" {
		p.Add("rotate-key", o.Rotation.Keys[0], "needs --service-account-key-sockets, which says where the process is")
	}
	return p
}
