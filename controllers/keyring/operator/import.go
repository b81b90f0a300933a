// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/signing"
)

// Init makes a ring where no host has one. What was revoked there does not come back. next comes after active.
func (o *Operator) Init(ctx context.Context, active *signing.PrivateKey, retired []signing.PublicKey, next Successor) error {
	published, err := o.fetch(ctx, false)
	if err != nil {
		return err
	}
	lost := hosts.Stand(hosts.File{Host: o.Host, Err: fs.ErrNotExist}, published)
	if fact, fallen := lost.Fallen(); fallen {
		return ring.Refuse(fact.Message, fact.Remedy+"; keys forget "+o.Host+" gives it up, and all tokens of its keys are refused then")
	}
	if len(published.Entries) > 0 {
		host := published.Entries[0].Host
		return ring.Refuse(fmt.Sprintf("host %s has a key ring, and a second one would be forked from it", host),
			"copy that file here and import it (keys import) or, if that host is gone for good: keys forget "+host)
	}
	if published.Removed.Has(active.Public()) {
		return ring.Refuse(fmt.Sprintf("key %s was revoked", active.ID()), "begin with another key")
	}
	retired = slices.DeleteFunc(slices.Clone(retired), published.Removed.Has)
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
		// The file here may be fine, and that of a fork which is used elsewhere.
		if why, ok := errors.AsType[*ring.Refusal](o.stand(present, published).Refuses(check.Makes)); ok {
			fact.Remedy = why.Remedy
		}
		err = ring.Refuse(from.Path()+": "+fact.Message, fact.Remedy)
	case options.AcceptOlder:
		err = ring.Refuse(from.Path()+" is not older than the ring that this host has used", "leave out --accept-older")
	case !stands.Follows():
		err = ring.Refuse(from.Path()+" has not come from any ring that is published: it is an old copy, or of another cluster",
			"bring the ring of host "+published.Entries[0].Host+" here; keys forget gives up a host that is gone for good")
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
func (o *Operator) acceptOlder(ctx context.Context, present, copied ring.State, p hosts.Published,
	stands *hosts.Standing) (notes []string, err error) {
	if host := stands.Holder(); host != "" {
		return nil, ring.Refuse("host "+host+" has the ring that this host has used", "bring that one here (keys import)")
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
