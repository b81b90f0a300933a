// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/signing/ring"
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
	// Relying is what relying parties outside of the cluster read.
	Relying Relying
	// Progress, if not nil, is called with what a step waits for, and for how long at most if that is
	// known.
	Progress func(what string, left time.Duration)
}

// errNoCluster refuses a step that has to ask the cluster.
var errNoCluster = errors.New("kube-apiserver must be asked first: give --kubeconfig")

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
		return nil, &ring.Refusal{
			Reason: fmt.Sprintf("key %s is in another process (%s), and so must be the one after it", after.ID, after.Signer),
			Remedy: "name it (keys rotate --next-key=kep740:NAME, keys next --key=kep740:NAME), or give --next-key=none",
		}
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
	Next  Successor // the key after the next one
	Wait  bool
	Force bool // ignore caches
	// Lost, if not nil, is called in place of waiting for caches, with what would refuse the rotation, when no host could
	// sign with the active key for ten minutes.
	Lost    func(caches error)
	Without []string // hosts that are gone for good
}

// Rotate makes the next key the active one, once every known host has it, every kube-apiserver accepts it
// and no cache is without it.
func (o *Operator) Rotate(ctx context.Context, options RotateOptions) error {
	state, err := o.read()
	if err != nil {
		return err
	}
	if _, err := ring.Rotate(state, nil, o.Clock.Now()); err != nil {
		return err
	}
	key, _ := state.Next()
	made, err := o.make(ctx, options.Next, key)
	if err != nil {
		return err
	}
	for wait := (waiting{}); ; {
		err := o.rotate(ctx, key, made, options)
		if err == nil || !options.Wait || !o.await(ctx, err, &wait) {
			if cause := context.Cause(ctx); err != nil && cause != nil {
				err = fmt.Errorf("the key was not rotated: %w (%w)", err, cause)
			}
			return err
		}
	}
}

func (o *Operator) rotate(ctx context.Context, key ring.Key, made *ring.Key, options RotateOptions) error {
	state, err := o.read()
	if err != nil {
		return err
	}
	if next, _ := state.Next(); next.ID != key.ID {
		return &ring.Refusal{Reason: "the ring was changed meanwhile, and key " + key.ID + " is not next", Remedy: "run the command again"}
	}
	published, err := o.mayUse(ctx, state, key, options.Without)
	if err == nil && !options.Force {
		err = o.cached(ctx, published, state, options.Without)
		if err != nil && options.Lost != nil && published.Lost(state.Active().ID, options.Without) {
			options.Lost(err)
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
func (o *Operator) fetch(ctx context.Context, record bool) (consistency.Published, error) {
	if o.Cluster == nil {
		return consistency.Published{}, nil
	}
	return consistency.Refresh(ctx, o.Cluster.Client, record && !o.File.IsDryRun())
}

// stand compares the ring of this host with what is published.
func (o *Operator) stand(state ring.State, p consistency.Published, use ...ring.Key) *consistency.Standing {
	return consistency.Stand(consistency.File{Host: o.Host, State: state}, p, use...)
}

// mayUse returns nil if every known host has a key and every kube-apiserver accepts it.
func (o *Operator) mayUse(ctx context.Context, state ring.State, key ring.Key, without []string) (consistency.Published, error) {
	if o.Cluster == nil {
		return consistency.Published{}, errNoCluster
	}
	published, err := o.fetch(ctx, true)
	if err == nil {
		err = o.stand(state, published, key).Refuses(check.Changes|check.Uses, without...)
	}
	if err == nil {
		err = o.Cluster.Find(ctx, published.APIServers(), without...)
	}
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
	if o.Cluster == nil || o.File.IsDryRun() {
		return nil
	}
	return consistency.Edit(ctx, o.Cluster.Client, func(p *consistency.Published) error { return p.ClaimRing(state, o.Host, without) })
}

// Next replaces the next key, which need not be available. If that is what is wanted, nothing changes.
func (o *Operator) Next(ctx context.Context, wanted Successor, without ...string) error {
	state, err := o.read()
	if err != nil {
		return err
	}
	published, err := o.fetch(ctx, true)
	if err == nil {
		err = o.stand(state, published).Refuses(check.Changes, without...)
	}
	if err != nil {
		return err
	}
	next, replaces := state.Next()
	kind := cmp.Or(wanted.Algorithm, state.Active().Kind(), "?")
	switch {
	case replaces && wanted.Signer == "" && next.Kind() == kind:
		return &ring.Refusal{Reason: fmt.Sprintf("key %s (%s) is the next one", next.ID, next.Algorithm), Remedy: "nothing to do", Done: true}
	case replaces:
		if err := published.MayWithdraw(next); err != nil {
			return err
		}
	}
	key, err := o.make(ctx, wanted, state.Active())
	if err != nil {
		return err
	}
	if key.Foreign() {
		if i := slices.IndexFunc(published.Entries, func(entry consistency.Entry) bool { return !entry.Signer }); i >= 0 {
			return &ring.Refusal{
				Reason: fmt.Sprintf("key %s has an ID that %s has chosen, and kube-apiserver on host %s has key files, in which it finds no such key",
					key.ID, key.Signer, published.Entries[i].Host),
				Remedy: "have every kube-apiserver use our external signer first",
			}
		}
	}
	return o.change(ctx, state, without, func(state ring.State) (ring.State, error) { return ring.Next(state, *key, o.Clock.Now()) })
}

// Rollback goes back to the key that the last rotation retired. next is for a ring whose next key is of
// another kind than that.
func (o *Operator) Rollback(ctx context.Context, next Successor, without []string) error {
	state, err := o.read()
	if err != nil {
		return err
	}
	after, err := ring.Rollback(state, nil, o.Clock.Now())
	if err != nil {
		return err
	}
	previous, _ := state.Key(state.Previous)
	var key *ring.Key
	if _, keeps := after.Next(); !keeps {
		if key, err = o.make(ctx, next, previous); err != nil {
			return err
		}
	}
	published, err := o.mayUse(ctx, state, previous, without)
	if withdrawn, ok := state.Next(); err == nil && ok && key != nil {
		err = published.MayWithdraw(withdrawn)
	}
	if err != nil {
		return err
	}
	return o.change(ctx, state, without, func(state ring.State) (ring.State, error) { return ring.Rollback(state, key, o.Clock.Now()) })
}

// Init makes a ring where no host has one. What was revoked there does not come back. next comes after active.
func (o *Operator) Init(ctx context.Context, active *signing.PrivateKey, retired []signing.PublicKey, next Successor) error {
	published, err := o.fetch(ctx, false)
	if err != nil {
		return err
	}
	lost := consistency.Stand(consistency.File{Host: o.Host, Err: fs.ErrNotExist}, published)
	if fact, fallen := lost.Fallen(); fallen {
		return &ring.Refusal{
			Reason: fact.Message, Remedy: fact.Remedy + "; keys forget " + o.Host + " gives it up, and all tokens of its keys are refused then",
		}
	}
	if len(published.Entries) > 0 {
		host := published.Entries[0].Host
		return &ring.Refusal{
			Reason: fmt.Sprintf("host %s has a key ring, and a second one would be forked from it", host),
			Remedy: "copy that file here and import it (keys import) or, if that host is gone for good: keys forget " + host,
		}
	}
	if published.Revoked(active.Public()) {
		return &ring.Refusal{Reason: fmt.Sprintf("key %s was revoked", active.ID()), Remedy: "begin with another key"}
	}
	retired = slices.DeleteFunc(slices.Clone(retired), published.Revoked)
	key, err := o.make(ctx, next, ring.KeyOf(active))
	if err != nil {
		return err
	}
	return o.File.Init(active, retired, key, o.Clock.Now())
}

// ImportOptions select what Import does with a ring that is not simply newer.
type ImportOptions struct {
	Join        bool // take only the keys of a forked ring
	AcceptOlder bool // make a ring the newest that is older than the one that this host has used, and that is lost
}

// Import takes the ring of another host or a backup. What is revoked stays revoked. The notes say what is lost.
func (o *Operator) Import(ctx context.Context, from *ring.File, options ImportOptions) (notes []string, err error) {
	copied, err := from.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist", from.Path()) // Read advises to make a ring
	}
	if err != nil {
		return nil, err
	}
	present, err := o.read()
	if err != nil && (options.Join || !errors.Is(err, fs.ErrNotExist)) {
		return nil, fmt.Errorf("%w; move a damaged file away (mv) and run this again", err)
	}
	published, err := o.fetch(ctx, false)
	if err != nil {
		return nil, err
	}
	stands := o.stand(copied, published)
	fact, fallen := stands.Fallen()
	change := func(state ring.State) (ring.State, error) { return ring.Import(state, copied, published.Removed) }
	switch {
	case options.Join:
		fresh, err := o.fresh(ctx, present)
		if err != nil {
			return nil, err
		}
		change = func(state ring.State) (ring.State, error) {
			state.Revoked = ring.Union(state.Revoked, published.Removed)
			return ring.Join(state, copied, fresh, o.Clock.Now())
		}
	case fallen && options.AcceptOlder:
		return o.acceptOlder(ctx, present, copied, published, stands)
	case fallen:
		err = &ring.Refusal{Reason: from.Path() + ": " + fact.Message, Remedy: fact.Remedy}
	case options.AcceptOlder:
		err = &ring.Refusal{Reason: from.Path() + " is not older than the ring that this host has used", Remedy: "leave out --accept-older"}
	case !stands.Follows():
		err = &ring.Refusal{
			Reason: from.Path() + " has not come from any ring that is published: it is an old copy, or of another cluster",
			Remedy: "bring the ring of host " + published.Entries[0].Host + " here; keys forget gives up a host that is gone for good",
		}
	}
	if err == nil {
		if err = o.File.Update(present.Generation, change); err != nil && !ring.IsDone(err) {
			err = fmt.Errorf("%s: %w", from.Path(), err)
		}
	}
	return nil, err
}

// fresh makes a key for a ring that revocations leave without one that signs, none if that would be in another process.
func (o *Operator) fresh(ctx context.Context, state ring.State) (*ring.Key, error) {
	return o.make(ctx, Successor{None: state.Active().Kind() == ""}, state.Active())
}

// acceptOlder makes a copy the newest ring, unless another host still has the one that this host has used.
func (o *Operator) acceptOlder(ctx context.Context, present, copied ring.State, p consistency.Published, stands *consistency.Standing) (
	notes []string, err error,
) {
	if host := stands.Holder(); host != "" {
		return nil, &ring.Refusal{Reason: "host " + host + " has the ring that this host has used", Remedy: "bring that one here (keys import)"}
	}
	own, _ := p.Entry(o.Host)
	fresh, err := o.fresh(ctx, copied)
	if err != nil {
		return nil, err
	}
	copied.Revoked = ring.Union(copied.Revoked, p.Removed)
	accepted, err := ring.AcceptOlder(copied, own.Generation, own.History, stands.Active(), fresh, o.Clock.Now())
	if err != nil {
		return nil, err
	}
	notes = []string{"bring the ring to the other hosts now: one that signs with a key that is not in it signs nothing until then"}
	for _, id := range slices.Sorted(maps.Keys(own.Keys)) {
		if _, kept := accepted.Key(id); !kept && !p.RevokedID(id) {
			notes = append(notes, fmt.Sprintf("the %s key %s is lost: its tokens are refused from now on", own.Keys[id], id))
		}
	}
	return notes, o.File.Update(present.Generation, func(ring.State) (ring.State, error) { return accepted, nil })
}

// Forget has no step wait for a host any more.
func (o *Operator) Forget(ctx context.Context, host string) error {
	if o.Cluster == nil {
		return errNoCluster
	}
	if o.File.IsDryRun() {
		return nil
	}
	return consistency.Forget(ctx, o.Cluster.Client, host)
}

// read reads the ring for a command that writes it. It returns an error if the file is read-only.
func (o *Operator) read() (ring.State, error) {
	if err := o.File.Writable(); err != nil {
		return ring.State{}, err
	}
	return o.File.Read()
}
