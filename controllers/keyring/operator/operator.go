// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/published"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/signing/ring"
)

// Operator performs the steps of a rotation on one ring file.
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
	// Gate is nil if nothing but the cluster is asked.
	Gate Gate
	// Progress, if not nil, is called with what a step waits for, and for how long at most if that is
	// known.
	Progress func(what string, left time.Duration)

	// generation, if not 0, is the only one that may be changed.
	generation int64
}

// Gate is asked, besides the cluster, before a step that verifiers outside of it would notice. Its
// errors say what is missing: a *ring.Refusal if the operator has to act, one with Later or
// Until if it may come by itself. Its methods need not be safe for concurrent use.
type Gate interface {
	// Look returns what relying parties see.
	Look(ctx context.Context, state ring.State) []published.Seen
	// Activate returns nil if the next key may sign. It is asked during the hold of the key too, so that
	// a gate can count from what it saw first.
	Activate(ctx context.Context, state ring.State) error
	// Prune returns nil if the retired key may leave the ring.
	Prune(ctx context.Context, state ring.State, id string) error
}

const (
	// pollInterval is how often a wait reads the ring and asks kube-apiserver.
	pollInterval = 5 * time.Second
	// maxPermanent is how many permanent errors in a row end a wait. One is not enough: a
	// kube-apiserver that has just started forbids everything until it has read the roles.
	maxPermanent = 4
)

// errNoCluster refuses a step that has to ask the cluster.
var errNoCluster = errors.New("kube-apiserver must be asked first: give --kubeconfig")

// Start publishes a new key that generate returns. If a rotation is in progress, same reports whether
// its key is the wanted one: then the rotation has been started already, and nothing changes. The key
// is held for the age of the caches that the gate sees, if that is more than the policy's.
func (o *Operator) Start(
	ctx context.Context, same func(next signing.PublicKey) bool, generate func(present signing.PublicKey) (*signing.PrivateKey, error),
) (resumed bool, err error) {
	state, err := o.read()
	if err != nil {
		return false, err
	}
	if next, ok := state.Next(); ok {
		if public := next.PublicKey; !same(public) {
			return false, &ring.Refusal{
				Reason: fmt.Sprintf("a rotation to another key is in progress: %s (%s)", next.ID, signing.KindOf(public)),
				Remedy: "complete it, or roll it back and start again",
			}
		}
		return true, nil
	}
	if state.InProgress() {
		// The refusal names the rotation that is in progress.
		_, err := ring.Publish(state, ring.Key{}, o.Clock.Now(), o.Policy)
		return false, err
	}
	key, err := generate(state.Active().PublicKey)
	if err != nil {
		return false, err
	}
	policy := o.Policy
	if o.Gate != nil {
		for _, seen := range o.Gate.Look(ctx, state) {
			policy.CacheAge = max(policy.CacheAge, seen.CacheAge())
		}
	}
	return false, o.File.Update(state.Generation, func(state ring.State) (ring.State, error) {
		return ring.Publish(state, ring.KeyOf(key), o.Clock.Now(), policy)
	})
}

// ActivateOptions select what Activate waits for and asks.
type ActivateOptions struct {
	Wait      bool // for the end of the cache age, and until kube-apiserver accepts the key
	Force     bool // ignore the cache age, and ask one kube-apiserver only
	SkipProof bool // do not ask kube-apiserver
}

// Activate makes the next key the active one, once it may sign.
func (o *Operator) Activate(ctx context.Context, options ActivateOptions) error {
	permanent := 0
	for {
		state, err := o.read()
		if err != nil {
			return err
		}
		if options.Wait && state.Phase() == ring.Published {
			// Otherwise it would fail at the end of the wait.
			if err := o.provable(options); err != nil {
				return err
			}
		}
		if err = o.mayActivate(ctx, state, options.Force); err == nil {
			err = o.prove(ctx, state, options)
		}
		if err == nil {
			// Generation makes sure that the proof is about this key.
			return o.File.Update(state.Generation, func(state ring.State) (ring.State, error) {
				return ring.Activate(state, o.Clock.Now(), o.Policy, options.Force)
			})
		}
		if permanent++; !isPermanent(err) {
			permanent = 0
		}
		if !options.Wait || permanent == maxPermanent || !o.await(ctx, err) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// mayActivate returns nil if only the proof is missing.
func (o *Operator) mayActivate(ctx context.Context, state ring.State, force bool) error {
	_, err := ring.Activate(state, o.Clock.Now(), o.Policy, force)
	if o.Gate == nil || force || state.Phase() != ring.Published {
		return err
	}
	return cmp.Or(err, o.Gate.Activate(ctx, state))
}

// AwaitActivation returns when the cache age has passed. It does not ask the gate, because what that
// has seen by then helps no other process.
func (o *Operator) AwaitActivation(ctx context.Context) error {
	for {
		state, err := o.read()
		if err != nil {
			return err
		}
		if _, err = ring.Activate(state, o.Clock.Now(), o.Policy, false); err == nil {
			return nil
		}
		if !o.await(ctx, err) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// await waits a while if that may help, and reports whether to try again.
func (o *Operator) await(ctx context.Context, reason error) bool {
	if ctx.Err() != nil {
		return false
	}
	var refusal *ring.Refusal
	var refused *notAcceptedError
	var left time.Duration
	var what string
	pause := pollInterval
	switch {
	case errors.As(reason, &refusal) && !refusal.Until.IsZero():
		left = refusal.Until.Sub(o.Clock.Now())
		pause, what = min(left, pollInterval), refusal.Reason
	case errors.As(reason, &refusal) && refusal.Later:
		what = refusal.Reason
	case errors.As(reason, &refused):
		what = refused.Error()
	default:
		return false
	}
	if o.Progress != nil {
		o.Progress(what, left)
	}
	timer := o.Clock.NewTimer(max(pause, time.Millisecond))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// isPermanent reports whether waiting does not help, such as when the account does not exist. It helps
// if kube-apiserver does not accept the key yet, cannot be reached or is overloaded.
func isPermanent(err error) bool {
	notAccepted, ok := errors.AsType[*notAcceptedError](err)
	if !ok || keyprobe.IsRefusal(notAccepted.err) {
		return false
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code < http.StatusInternalServerError && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests
	}
	_, unreachable := errors.AsType[*url.Error](err)
	return !unreachable
}

// notAcceptedError means that kube-apiserver has not accepted a key.
type notAcceptedError struct {
	id      string
	foreign bool
	err     error
}

func notAccepted(key ring.Key, err error) error {
	if err == nil {
		return nil
	}
	return &notAcceptedError{id: key.ID, foreign: key.Foreign(), err: err}
}

func (e *notAcceptedError) Error() string {
	if !keyprobe.IsRefusal(e.err) {
		return fmt.Sprintf("it is not known whether key %s is accepted: %v", e.id, e.err)
	}
	if e.foreign {
		return fmt.Sprintf("key %s cannot sign yet: %v: its ID is one that its signer has chosen, "+
			"so every kube-apiserver needs our external signer; wait until that publishes it", e.id, e.err)
	}
	return fmt.Sprintf("key %s cannot sign yet: %v: give every kube-apiserver its public half with one more --service-account-key-file "+
		"('keys list -o pem' prints it) and restart it, or wait if an external signer publishes it", e.id, e.err)
}

func (e *notAcceptedError) Unwrap() error { return e.err }

// provable returns an error if a proof is wanted and there is no cluster to ask.
func (o *Operator) provable(options ActivateOptions) error {
	if options.SkipProof || o.Cluster != nil {
		return nil
	}
	return fmt.Errorf("%w, or --skip-proof; a key that kube-apiserver does not know signs dead tokens", errNoCluster)
}

func (o *Operator) prove(ctx context.Context, state ring.State, options ActivateOptions) error {
	if err := o.provable(options); err != nil || options.SkipProof {
		return err
	}
	next, _ := state.Next() // otherwise the transition would have been refused
	prove := o.Cluster.Prove
	if options.Force {
		prove = o.Cluster.ProveOne
	} else if err := o.everyAPIServer(ctx, "every new token is refused by each kube-apiserver that does not know the next key"); err != nil {
		return err
	}
	return notAccepted(next, prove(ctx, next.Private))
}

// Complete activates the next key if it is not active yet, and ends the rotation.
func (o *Operator) Complete(ctx context.Context, options ActivateOptions) error {
	state, err := o.read()
	if err != nil {
		return err
	}
	if state.Phase() == ring.Published {
		if err := o.Activate(ctx, options); err != nil && !ring.IsDone(err) {
			return err
		}
	}
	return o.Update(func(state ring.State) (ring.State, error) {
		return ring.Complete(state, o.Clock.Now(), o.Policy)
	})
}

// Update makes a transition that needs no proof.
func (o *Operator) Update(transition func(ring.State) (ring.State, error)) error {
	state, err := o.read()
	if err != nil {
		return err
	}
	return o.File.Update(state.Generation, transition)
}

// read reads the ring for a command that writes it. It returns an error if the file is read-only.
func (o *Operator) read() (ring.State, error) {
	if err := o.File.Writable(); err != nil {
		return ring.State{}, err
	}
	state, err := o.File.Read()
	if err == nil && o.generation != 0 && o.generation != state.Generation {
		err = &ring.StaleError{Path: o.File.Path(), Seen: o.generation, Now: state.Generation}
	}
	return state, err
}
