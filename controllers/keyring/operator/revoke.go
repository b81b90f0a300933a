// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/check"
)

const (
	// nudgeInterval is the interval at which kube-apiservers are asked whether they still have a revoked key,
	// and revokeWait how long those are waited for that have an external signer. One that lives renews its identity Lease
	// within renewals.
	nudgeInterval = 500 * time.Millisecond
	revokeWait    = 30 * time.Second
	renewals      = 15 * time.Second
)

// RevokeOptions select keys, and what is asked.
type RevokeOptions struct {
	IDs []string
	// Active is for the key that the newest published ring signs with, unless that signs because another one was
	// revoked: then nothing more is revoked.
	Active bool
	// Confirm is called with what the step breaks, and an error of it ends the step; nil confirms.
	Confirm func(ctx context.Context, warning string) error
	Without []string // hosts that are gone for good
}

// Revoke ends the acceptance of keys, also of those in use, and returns nil when no kube-apiserver of a known
// host does and no token controller signs with one. The revocation is published first, so that a file that cannot be
// written does not stop that; then the ring file of this host is changed, as far as it is the newest. The notes say
// what is left to do.
func (o *Operator) Revoke(ctx context.Context, options RevokeOptions) (notes []string, err error) {
	notes, err = o.revoke(ctx, options)
	if o.Cluster != nil && (len(notes) > 0 || err == nil) { // else nothing was revoked
		err = errors.Join(err, o.SignsRevoked(ctx))
	}
	return notes, err
}

func (o *Operator) revoke(ctx context.Context, options RevokeOptions) (notes []string, err error) {
	var published hosts.Published
	var fetchErr, unclear error
	if o.Cluster != nil {
		published, fetchErr = hosts.Fetch(ctx, o.Cluster.Client) // no more, because nothing may keep it from being published
	}
	state, fileErr := o.File.Read()
	stands := hosts.Stand(hosts.File{Host: o.Host, State: state, Err: fileErr}, published)
	ids := options.IDs
	if options.Active {
		var note string
		if fetchErr != nil {
			return nil, fmt.Errorf("it is not known which key signs: %w", fetchErr)
		}
		if ids, note, unclear = o.activeKey(stands, fileErr); note == "" {
			return nil, unclear
		}
		notes = append(notes, note)
	}
	known := ring.Union(state.Revoked, published.Removed)
	var gone ring.Revocations
	for _, id := range ids {
		record, ok := published.Revocation(id, state)
		if !ok {
			return nil, errors.Join(ring.Refuse("no ring has a key "+id, "name keys that keys list shows"), fileErr, fetchErr)
		}
		gone = append(gone, record)
	}
	if added := len(ring.Union(known, gone)) > len(known); added && options.Confirm != nil {
		warning := fmt.Sprintf("every token signed with %s will be refused, those in Secrets until they are filled again",
			strings.Join(ids, ", "))
		if err := options.Confirm(ctx, warning); err != nil {
			return nil, err
		}
	}
	errs := []error{fetchErr, unclear, o.edit(ctx, func(p *hosts.Published) error {
		p.Revoke(slices.Concat(state.Revoked, gone))
		published = *p
		return nil
	})}
	if fileErr == nil {
		var left []string
		left, fileErr = o.revokeInFile(ctx, state, ring.Union(published.Removed, gone), stands, options.Without)
		notes = append(notes, left...)
	}
	if fileErr != nil {
		errs = append(errs, fmt.Errorf("the ring file of this host is as it was: %w; then run the command again", fileErr))
	}
	if o.File.IsDryRun() {
		return notes, errors.Join(errs...) // nothing is published, so no kube-apiserver begins to refuse a key
	}
	left, err := o.awaitRefused(ctx, ring.Union(published.Removed, gone), options.Without)
	if err = errors.Join(append(errs, err)...); err != nil {
		err = fmt.Errorf("revoked, but: %w", err)
	}
	return append(notes, left...), err
}

// activeKey returns the key that --active is for, none if that signs because another one was revoked. With a note and an error it is
// not clear whether that has leaked, too: what earlier revocations have left to do is done.
func (o *Operator) activeKey(stands *hosts.Standing, unknown error) (ids []string, note string, err error) {
	active, forks := stands.Active(), stands.Forks()
	by, long := stands.ByRevocation(o.Clock.Now())
	published, strayed := stands.Strayed()
	switch {
	case o.Cluster == nil:
		return nil, "", fmt.Errorf("it is not known which key signs: %w", errNoCluster)
	case forks != "":
		return nil, "", ring.Refuse("rings are forked, and several keys sign ("+forks+")",
			"name those that have leaked (keys revoke KEY-ID)")
	case strayed:
		return nil, "", ring.Refuse(fmt.Sprintf("the file of this host has %s as the key that signs, and the host has published %s: the "+
			"file was put back, or is of another cluster", cmp.Or(active, "none"), cmp.Or(published, "none")),
			"if the published one has leaked: keys revoke "+cmp.Or(published, "KEY-ID"))
	case active == "":
		return nil, "", cmp.Or(unknown, errors.New("no key signs: there is none left, or no key ring"))
	case long:
		return nil, "nothing more is revoked",
			ring.Refuse(fmt.Sprintf("key %s signs since another one was revoked, more than a day ago", active),
				"if it has leaked too: keys revoke "+active+"; if not, nothing is left to do but what is named here")
	case by:
		return nil, fmt.Sprintf("nothing more is revoked: key %s signs because another one was revoked", active), nil
	}
	return []string{active}, "the key that signs is " + active, nil
}

// revokeInFile takes revoked keys out of the ring of this host. What they leave empty gets a new key of the same kind,
// unless another process would have to have it. A ring that is not the newest only gets the revocation.
func (o *Operator) revokeInFile(ctx context.Context, state ring.State, gone ring.Revocations, stands *hosts.Standing,
	without []string) (notes []string, err error) {
	if err := o.File.Writable(); err != nil {
		return nil, err
	}
	why := stands.Refuses(check.Makes, without...)
	if why == nil && len(without) > 0 && o.Cluster != nil {
		why = o.gone(ctx, without)
	}
	if why == nil {
		why = o.claim(ctx, state, without)
	}
	if why != nil {
		if slices.ContainsFunc(state.Keys, func(key ring.Key) bool { return gone.Has(key.PublicKey) }) {
			notes = append(notes, "no key was made here, because this is not the newest ring: "+why.Error())
		}
		if len(ring.Union(state.Revoked, gone)) == len(state.Revoked) {
			return notes, nil
		}
		return notes, o.File.Update(state.Generation, func(state ring.State) (ring.State, error) {
			state.Revoked = ring.Union(state.Revoked, gone)
			return state, nil
		})
	}
	var fresh [2]*ring.Key
	for i := range fresh {
		if fresh[i], err = o.fresh(ctx, state); err != nil {
			return nil, err
		}
	}
	for _, key := range state.Keys {
		if key.Signer != "" && gone.Has(key.PublicKey) {
			notes = append(notes, fmt.Sprintf("%s has the private half of key %s still: destroy it there", key.Signer, key.ID))
		}
	}
	err = o.File.Update(state.Generation, func(state ring.State) (ring.State, error) {
		return ring.Revoke(state, gone, fresh[0], fresh[1], o.Clock.Now())
	})
	if ring.IsDone(err) {
		err = nil
	}
	return notes, err
}

// awaitRefused makes every kube-apiserver with an external signer fetch the key set immediately, and returns when none
// has the keys. It asks for what each publishes, because the private half may be gone. A kube-apiserver with key
// files has them until it is restarted. The error names each that has them, and each that could not be asked.
func (o *Operator) awaitRefused(ctx context.Context, revoked ring.Revocations, without []string) (notes []string, err error) {
	if o.Cluster == nil {
		return nil, errors.New("it is not known whether a kube-apiserver still accepts them, because no kubeconfig was found")
	}
	published, err := o.fetch(ctx, false)
	if err != nil {
		return nil, err
	}
	unasked := o.Cluster.Find(ctx, published.APIServers(), without...)
	for _, fact := range hosts.Stand(hosts.File{}, published).Facts {
		silent := fact.Code == check.HostWithoutRing || fact.Code == check.RingUnreadable
		if silent && !slices.Contains(without, fact.Host) {
			unasked = errors.Join(unasked, fmt.Errorf("%s: %s", fact.Message, fact.Remedy))
		}
	}
	signer := slices.ContainsFunc(published.Entries, func(entry hosts.Entry) bool { return entry.Signer })
	notes = []string{"relying parties outside of the cluster accept them until they read the key set again, those that read " +
		"kube-apiserver's for up to an hour; and kube-apiserver accepts a token that it has just seen for 10 s"}
	for _, entry := range published.Entries {
		if entry.Host != o.Host && slices.ContainsFunc(revoked, func(gone ring.Removed) bool { return entry.Keys[gone.ID] != "" }) {
			notes = append(notes,
				"the file of host "+entry.Host+" has them: bring the ring there, or run the command there if its ring is newer")
		}
	}
	for begun := o.Clock.Now(); ; {
		findings := o.Cluster.Accepting(ctx, revoked, true)
		if len(findings) == 0 {
			return notes, errors.Join(unasked, o.gone(ctx, without))
		}
		if !signer || o.Clock.Since(begun) > revokeWait || !o.sleep(ctx, nudgeInterval) {
			return notes, errors.Join(check.Error(findings, ""), unasked)
		}
		o.Progress(findings[0].Message, 0)
	}
}

// gone returns an error for each host whose kube-apiserver renews its identity Lease, as it does every 10 s: that it was left
// out by mistake would not show where servers have no Node's address.
func (o *Operator) gone(ctx context.Context, hosts []string) error {
	before, err := apiservers.Renewals(ctx, o.Cluster.Client)
	if err != nil || !slices.ContainsFunc(hosts, func(host string) bool { return before[host] != "" && !slices.Contains(o.left, host) }) {
		return err
	}
	o.Progress(fmt.Sprintf("whether kube-apiserver lives on %q", hosts), renewals)
	o.sleep(ctx, renewals)
	after, err := apiservers.Renewals(ctx, o.Cluster.Client)
	for _, host := range hosts {
		if after[host] > before[host] {
			err = errors.Join(err, ring.Refuse("kube-apiserver lives on host "+host, "leave out --without-host="+host))
		}
	}
	if err == nil {
		o.left = append(o.left, hosts...)
	}
	return err
}

// Accepting finds the kube-apiservers that accept a revoked key, and those that could not be asked. If now is set, each
// fetches the key set first, which a key ID that it does not know makes it do
// (pkg/serviceaccount/externaljwt/plugin/keycache.go).
func (c *Cluster) Accepting(ctx context.Context, revoked ring.Revocations, now bool) (findings []check.Finding) {
	if len(revoked) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, revokeWait)
	defer cancel()
	servers := c.all()
	answers, asked := make([][]check.KeyFact, len(servers)), sync.WaitGroup{}
	for i, server := range servers {
		asked.Go(func() { // none waits for another one
			if now {
				_, _ = keyprobe.HasKey(ctx, server.Client, "unknown-"+utilrand.String(20))
			}
			accepted, err := hosts.AcceptedRevoked(ctx, server.URL, server.Client, revoked)
			if err != nil {
				accepted = append(accepted, check.Key(check.APIServerNotAsked, check.KeyArgs{Host: server.URL, Why: err.Error()}))
			}
			answers[i] = accepted
		})
	}
	asked.Wait()
	for _, fact := range slices.Concat(answers...) {
		findings = append(findings, fact.Finding)
	}
	return findings
}
