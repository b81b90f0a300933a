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

	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/remote"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// Operator changes one ring file.
type Operator struct {
	File *ring.File
	// Signers are the processes that have keys of the ring, and Issuer is the one of the tokens that they
	// are tried with.
	Signers *remote.Client
	Issuer  string
	Policy  ring.Policy
	Clock   clock.WithTicker
	// Cluster is nil if no cluster can be asked.
	Cluster *Cluster
	// Host is the name of this host, as in its line of the published rings.
	Host string
	// ReadIssuer reads the keys as relying parties outside of the cluster do, of each of Issuers or, without any, of the
	// cluster's issuer if that answers. If it is nil, none is asked.
	ReadIssuer func(ctx context.Context, issuer string) ([]signing.PublicKey, error)
	Issuers    []string
	// Progress is called with what a step waits for, and for how long at most if that is
	// known.
	Progress func(what string, left time.Duration)

	left []string // hosts whose kube-apiservers were gone: a step that waits does not check them again
}

// errNoCluster refuses a step that has to ask the cluster.
var errNoCluster = errors.New("kube-apiserver must be asked first, and no kubeconfig was found")

// Successor says where a new key comes from. The zero one is of the kind of the key that it comes after.
type Successor struct {
	// None is for no key.
	None bool
	// Signer is kep740:NAME of the process that has it, which may refuse the tokens of Secrets if BoundOnly.
	Signer    string
	BoundOnly bool
	// Algorithm is the kind of a new key in the file.
	Algorithm string
}

// make generates or pins a key that comes after another one, nil for none. It never makes a key in the
// file after one of another process: that would undo the HSM.
func (o *Operator) make(ctx context.Context, s Successor, after ring.Key) (*ring.Key, error) {
	var key *signing.PrivateKey
	var err error
	switch kind := cmp.Or(s.Algorithm, after.Kind()); {
	case s.None:
		return nil, nil
	case s.Signer != "":
		key, err = o.Pin(ctx, s.Signer, s.BoundOnly)
	case kind == "":
		return nil, ring.Refuse(fmt.Sprintf("key %s is in another process (%s), and so must be the one after it", after.ID, after.Signer),
			"name it (keys rotate --next-key=kep740:NAME, keys next --key=kep740:NAME), or give --next-key=none")
	default:
		key, err = signing.GenerateKey(kind)
	}
	if err != nil {
		return nil, err
	}
	made := ring.KeyOf(key)
	return &made, nil
}

// RotateOptions select what Rotate waits for and asks.
type RotateOptions struct {
	Next      Successor     // the key after the next one
	OlderThan time.Duration // leave a younger active key
	Wait      bool
	Force     bool     // ignore caches
	Without   []string // hosts that are gone for good
}

// Rotate makes the next key the active one, once every known host has it, every kube-apiserver accepts it
// and no cache is without it.
func (o *Operator) Rotate(ctx context.Context, options RotateOptions) error {
	state, err := o.read()
	if err != nil {
		return err
	}
	active := state.Active()
	since := fmt.Sprintf("key %s is active since %s", active.ID, active.ActivatedAt.UTC().Format(time.RFC3339))
	// A key that was activated in the future is of a wrong clock: it may be as old as any.
	if age := o.Clock.Since(active.ActivatedAt); options.OlderThan > 0 && age < options.OlderThan && age > -ring.ClockSkew {
		return &ring.Refusal{Reason: since, Remedy: "which is less than " + options.OlderThan.String(), Done: true}
	}
	if _, err := ring.Rotate(state, nil, o.Clock.Now()); err != nil {
		return err
	}
	key, _ := state.Next()
	made, err := o.make(ctx, options.Next, key)
	if err == nil { // what refuses the key after the next one refuses it before a wait
		_, err = ring.Rotate(state, made, o.Clock.Now())
	}
	if err != nil {
		return err
	}
	for wait := (waiting{}); ; {
		err := o.rotate(ctx, key, made, options)
		if err == nil {
			return nil
		}
		if !options.Wait || !o.await(ctx, err, &wait) {
			if cause := context.Cause(ctx); cause != nil {
				err = fmt.Errorf("the key was not rotated: %w (%w)", err, cause)
			}
			return fmt.Errorf("%w; %s", err, since)
		}
	}
}

func (o *Operator) rotate(ctx context.Context, key ring.Key, made *ring.Key, options RotateOptions) error {
	state, err := o.read()
	if err != nil {
		return err
	}
	if next, _ := state.Next(); next.ID != key.ID {
		return ring.Refuse("the ring was changed meanwhile, and key "+key.ID+" is not next", "run the command again")
	}
	published, err := o.mayUse(ctx, state, key, options.Without)
	if err == nil && !options.Force {
		err = o.cached(ctx, published, state, options.Without)
		// A timer never rotates under relying parties.
		if err != nil && options.OlderThan == 0 && published.Lost(state.Active().ID, options.Without) {
			o.Progress(fmt.Sprintf("no cache is waited for, as if it was forced: no host could sign with the active key for ten minutes, "+
				"and %v", err), 0)
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return o.change(ctx, state, options.Without, func(state ring.State) (ring.State, error) {
		return ring.Rotate(state, made, o.Clock.Now())
	})
}

// fetch returns the published rings and which hosts there are, nothing without a cluster. A command that changes
// something records the hosts.
func (o *Operator) fetch(ctx context.Context, record bool) (hosts.Published, error) {
	if o.Cluster == nil {
		return hosts.Published{}, nil
	}
	return hosts.Refresh(ctx, o.Cluster.Client, record && !o.File.IsDryRun())
}

// stand compares the ring of this host with what is published.
func (o *Operator) stand(state ring.State, p hosts.Published, use ...ring.Key) *hosts.Standing {
	return hosts.Stand(hosts.File{Host: o.Host, State: state}, p, use...)
}

// mayChange returns what is published, and nil if no fact blocks a step. One that begins to use a key, or ends it,
// concerns every known host, and each kube-apiserver is found.
func (o *Operator) mayChange(ctx context.Context, state ring.State, step check.Blocks, without []string,
	use ...ring.Key) (hosts.Published, error) {
	everywhere := step&check.Uses != 0
	if everywhere && o.Cluster == nil {
		return hosts.Published{}, errNoCluster
	}
	published, err := o.fetch(ctx, true)
	if err == nil {
		err = o.stand(state, published, use...).Refuses(step, without...)
	}
	if err == nil && everywhere {
		if err = o.Cluster.Find(ctx, published.APIServers(), without...); err == nil {
			err = o.gone(ctx, without)
		}
	}
	return published, err
}

// mayUse returns nil if every known host has a key and every kube-apiserver accepts it.
func (o *Operator) mayUse(ctx context.Context, state ring.State, key ring.Key, without []string) (hosts.Published, error) {
	published, err := o.mayChange(ctx, state, check.Changes|check.Uses, without, key)
	if err == nil {
		err = notAccepted(key, o.Cluster.Accepts(ctx, key.Key))
	}
	return published, err
}

// change makes a transition, unless another host is about to make one. The ring file is changed only if it
// is still the one that was read.
func (o *Operator) change(ctx context.Context, state ring.State, without []string, transition func(ring.State) (ring.State, error)) error {
	if _, err := transition(state); err != nil {
		return err
	}
	if err := o.claim(ctx, state, without); err != nil {
		return err
	}
	return o.File.Update(state.Generation, transition)
}

func (o *Operator) claim(ctx context.Context, state ring.State, without []string) error {
	return o.edit(ctx, func(p *hosts.Published) error { return p.ClaimRing(state, o.Host, without) })
}

// edit changes what is published, unless there is no cluster, or this is a dry run.
func (o *Operator) edit(ctx context.Context, change func(*hosts.Published) error) error {
	if o.Cluster == nil || o.File.IsDryRun() {
		return nil
	}
	return hosts.Edit(ctx, o.Cluster.Client, change)
}

// Next replaces the next key, which need not be available. If that is what is wanted, nothing changes.
func (o *Operator) Next(ctx context.Context, wanted Successor, without ...string) error {
	state, err := o.read()
	if err != nil {
		return err
	}
	published, err := o.mayChange(ctx, state, check.Changes, without)
	if err == nil && len(without) > 0 && o.Cluster != nil {
		err = o.gone(ctx, without)
	}
	if err != nil {
		return err
	}
	next, replaces := state.Next()
	kind := cmp.Or(wanted.Algorithm, state.Active().Kind(), "?")
	switch {
	case replaces && wanted.Signer == "" && next.Kind() == kind:
		return &ring.Refusal{Reason: fmt.Sprintf("key %s (%s) is the next one", next.ID, next.Algorithm), Remedy: "nothing to do",
			Done: true}
	case replaces:
		if err := published.MayWithdraw(next); err != nil {
			return err
		}
	}
	key, err := o.make(ctx, wanted, state.Active())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(published.Entries, func(entry hosts.Entry) bool { return !entry.Signer })
	if key.Foreign() && i >= 0 {
		return ring.Refuse(fmt.Sprintf("key %s has an ID that %s has chosen, and kube-apiserver on host %s has key files, in which it "+
			"finds no such key", key.ID, key.Signer, published.Entries[i].Host), "have every kube-apiserver use our external signer first")
	}
	return o.change(ctx, state, without, func(state ring.State) (ring.State, error) { return ring.Next(state, *key, o.Clock.Now()) })
}

// Rollback goes back to the key that the last rotation retired.
func (o *Operator) Rollback(ctx context.Context, without []string) error {
	state, err := o.read()
	if err != nil {
		return err
	}
	rollback := func(state ring.State) (ring.State, error) { return ring.Rollback(state, o.Clock.Now()) }
	after, err := rollback(state)
	if err != nil {
		return err
	}
	previous, _ := state.Key(state.Previous)
	published, err := o.mayUse(ctx, state, previous, without)
	_, keeps := after.Next()
	if next, ok := state.Next(); err == nil && ok && !keeps {
		err = published.MayWithdraw(next)
	}
	if err != nil {
		return err
	}
	return o.change(ctx, state, without, rollback)
}

// Forget has no step wait for a host any more.
func (o *Operator) Forget(ctx context.Context, host string) error {
	if o.Cluster == nil {
		return errNoCluster
	}
	if o.File.IsDryRun() {
		return nil
	}
	return hosts.Forget(ctx, o.Cluster.Client, host)
}

// read reads the ring for a command that writes it. It returns an error if the file is read-only.
func (o *Operator) read() (ring.State, error) {
	if err := o.File.Writable(); err != nil {
		return ring.State{}, err
	}
	return o.File.Read()
}

// Pin takes the key of another process once it has signed both kinds of tokens as it must, for an
// account that does not exist.
func (o *Operator) Pin(ctx context.Context, signer string, boundOnly bool) (*signing.PrivateKey, error) {
	name, err := signing.ParseSigner(signer)
	if err != nil {
		return nil, err
	}
	pinned, err := o.Signers.Pin(ctx, name)
	if err != nil {
		return nil, err
	}
	if longest := o.Policy.TokenLifetime; pinned.MaxTokenExpiration < longest {
		return nil, fmt.Errorf("%s signs tokens for at most %s, and kube-apiserver asks for up to %s: "+
			"raise its maximum, or give the longest life of your tokens with --longest-token-lifetime",
			signer, pinned.MaxTokenExpiration, longest)
	}
	key := signing.RemoteKey(name, pinned.Key, o.Signers.Sign)
	if err := tokens.TrySigner(ctx, key, o.Issuer); err != nil {
		return nil, fmt.Errorf("try a bound token: %w", err)
	}
	err = tokens.TryLegacySigner(ctx, key)
	if refused, ok := errors.AsType[*signing.UnavailableError](err); ok && refused.Refused {
		if boundOnly {
			return key, nil
		}
		return nil, fmt.Errorf("%s refuses the tokens of Secrets, which the token controller signs: "+
			"where it does not run, give --bound-tokens-only", signer)
	}
	if err != nil {
		return nil, fmt.Errorf("try a token of a Secret: %w", err)
	}
	return key, nil
}
