// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/keydir"
	"sa-controller-manager/signing/rotation"
)

// Operator makes the steps of a rotation in one directory.
type Operator struct {
	Dir    *keydir.Dir
	Policy rotation.Policy
	Clock  clock.WithTicker
	// Cluster is asked for proofs and for what uses a key. Nil means that there is none to ask.
	Cluster *Cluster
	// Progress is told what is waited for, and how long at most if that is known. Nil means nobody listens.
	Progress func(what string, left time.Duration)
}

// errNoCluster is the answer to a step that has to ask.
var errNoCluster = errors.New("kube-apiserver must be asked first: give --kubeconfig")

// Init makes the key directory.
func (o *Operator) Init(pair *keydir.Pair, retired []signing.PublicKey) error {
	_, err := o.Dir.Init(pair, retired, o.Clock.Now(), o.Policy)
	return err
}

// Start publishes a key that generate makes in place of the present one, or finds that this was done already. same tells whether
// the key of a rotation in progress is what is wanted now.
func (o *Operator) Start(same func(next signing.PublicKey) bool, generate func(present signing.PublicKey) (*keydir.Pair, error)) (resumed bool, err error) {
	snapshot, err := o.read()
	if err != nil {
		return false, err
	}
	if next := snapshot.Next; next != nil {
		if !same(next.Public()) {
			return false, &rotation.Refusal{
				Reason: fmt.Sprintf("a rotation to another key is in progress: %s (%s)", next.ID(), keydir.KindOf(next.Public())),
				Remedy: "complete it, or roll it back and start again",
			}
		}
		return true, nil
	}
	if snapshot.State.InProgress() {
		// It says which rotation stands in the way.
		_, err := rotation.Publish(snapshot.State, rotation.Key{}, o.Clock.Now(), o.Policy)
		return false, err
	}
	pair, err := generate(snapshot.Active.Public())
	if err != nil {
		return false, err
	}
	_, err = o.Dir.Publish(snapshot.State.Generation, pair, o.Clock.Now(), o.Policy)
	return false, err
}

// ActivateOptions say what is not waited for or not asked.
type ActivateOptions struct {
	Wait      bool // for the end of the cache age, and until kube-apiserver accepts the key
	Force     bool // do not mind the cache age
	SkipProof bool // do not ask kube-apiserver
}

// Activate has the next key sign once it may.
func (o *Operator) Activate(ctx context.Context, options ActivateOptions) error {
	lasting := 0
	for {
		snapshot, err := o.read()
		if err != nil {
			return err
		}
		if options.Wait && snapshot.Next != nil {
			// Or it would be found out at the end of the wait.
			if err := o.provable(options); err != nil {
				return err
			}
		}
		activate := func(state rotation.State) (rotation.State, error) {
			return rotation.Activate(state, o.Clock.Now(), o.Policy, options.Force)
		}
		if _, err = activate(snapshot.State); err == nil {
			err = o.prove(ctx, snapshot, options)
		}
		if err == nil {
			// The generation keeps what was proved from being said of another key.
			_, err = o.Dir.Update(snapshot.State.Generation, activate)
			if _, stale := errors.AsType[*keydir.StaleError](err); !stale {
				return err
			}
			continue // somebody was faster; see what they did
		}
		if lasting++; !lasts(err) {
			lasting = 0
		}
		if !options.Wait || lasting == maxLasting || !o.await(ctx, err) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// notAcceptedError is a key of which kube-apiserver has not said that it takes it.
type notAcceptedError struct {
	id  string
	err error
}

func (e *notAcceptedError) Error() string {
	if !keyprobe.IsRefusal(e.err) {
		return fmt.Sprintf("it is not known whether key %s is accepted: %v", e.id, e.err)
	}
	return fmt.Sprintf("key %s cannot sign yet: %v: give every kube-apiserver its public half with one more --service-account-key-file "+
		"('keys list -o pem' prints it) and restart it, or wait if an external signer publishes it", e.id, e.err)
}

func (e *notAcceptedError) Unwrap() error { return e.err }

// provable is nil unless a proof is wanted and there is nobody to bring it.
func (o *Operator) provable(options ActivateOptions) error {
	if options.SkipProof || o.Cluster != nil {
		return nil
	}
	return fmt.Errorf("%w, or --skip-proof; a key that kube-apiserver does not know signs dead tokens", errNoCluster)
}

func (o *Operator) prove(ctx context.Context, snapshot *keydir.Snapshot, options ActivateOptions) error {
	if err := o.provable(options); err != nil || options.SkipProof {
		return err
	}
	if err := o.Cluster.Prove(ctx, snapshot.Next); err != nil {
		return &notAcceptedError{id: snapshot.Next.ID(), err: err}
	}
	return nil
}

// Complete ends the rotation, after it has activated the next key if that is still to be done.
func (o *Operator) Complete(ctx context.Context, options ActivateOptions) error {
	snapshot, err := o.read()
	if err != nil {
		return err
	}
	if snapshot.State.Phase() == rotation.Published {
		if err := o.Activate(ctx, options); err != nil && !rotation.IsDone(err) {
			return err
		}
	}
	return o.update(func(state rotation.State) (rotation.State, error) {
		return rotation.Complete(state, o.Clock.Now(), o.Policy)
	})
}

func (o *Operator) update(transition func(rotation.State) (rotation.State, error)) error {
	snapshot, err := o.read()
	if err != nil {
		return err
	}
	_, err = o.Dir.Update(snapshot.State.Generation, transition)
	return err
}

// read is for a command that will write: a directory that cannot be written to is said before anything else is done.
func (o *Operator) read() (*keydir.Snapshot, error) {
	if err := o.Dir.Writable(); err != nil {
		return nil, err
	}
	return o.Dir.Read()
}
