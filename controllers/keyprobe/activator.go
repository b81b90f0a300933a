// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keyprobe proves that kube-apiserver accepts a signing key, and activates the new key of a
// changed key file once it does.
//
// kube-apiserver reads its --service-account-key-file only at startup, and refuses tokens of keys that
// it has not read. So the key of a changed file becomes the next key, and the active key goes on
// signing until kube-apiserver has accepted a token of the next key. The key that signs at startup is
// probed too: while kube-apiserver refuses it, no token is signed with it.
//
// The probe is a TokenReview of a short bound token for an existing account. Its audience is our own,
// so the token opens nothing. A legacy token would prove nothing: without its Secret it is refused.
//
// With a key ring file, the command that changed the file has asked kube-apiserver. The file then
// decides which key signs, and the probe only finds a key that is refused.
//
// With the external signer, kube-apiserver takes its keys from this process, and would refuse tokens
// of the previous key after a restart. So a changed key file waits until the previous key is in a
// verification key file.
package keyprobe

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/signing"
)

const (
	queueName = "key_probe"

	firstBackoff = time.Second
	maxBackoff   = 30 * time.Second
)

// Config is what an Activator needs. Clock may be nil.
type Config struct {
	Client    kubernetes.Interface
	Informers *informers.Informers
	Ring      *signing.Keyring
	// Issuer is kube-apiserver's --service-account-issuer. If it is "", it is looked up in
	// kube-apiserver's OIDC discovery document.
	Issuer string
	// Kept reports whether a key verifies after a restart too. It is nil if kube-apiserver does not
	// take its keys from this process.
	Kept func(keyID string) bool
	// Proven, if not nil, is called each time kube-apiserver has accepted another key than before. It
	// must not block.
	Proven   func()
	Recorder *events.Recorder
	// Process is the object that Events about this process regard.
	Process *corev1.ObjectReference
	Metrics *Metrics
	Loops   *reconcile.Metrics
	Clock   clock.WithTicker
}

// Activator probes keys. Build it with New before the informers are started. RingChanged
// and Status may be called from any goroutine.
type Activator struct {
	Config
	accounts corev1listers.ServiceAccountLister
	loop     *reconcile.Runner[work]
	status   atomic.Pointer[string]
	proven   atomic.Pointer[string] // the key ID that was accepted last, "" before
	refused  atomic.Pointer[string] // the key ID that was refused last, "" before

	// Only the worker of the loop uses the fields below.
	failure failure
}

// work is the one key of the queue.
type work string

const probing work = "probe"

// New returns an Activator that does not run yet.
func New(config Config) *Activator {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	a := &Activator{Config: config}
	a.loop = reconcile.New(reconcile.Config[work]{Name: queueName, Workers: 1, Sync: a.sync, Metrics: config.Loops, Clock: config.Clock})
	a.proven.Store(new(""))
	a.refused.Store(new(""))
	a.accounts, _ = config.Informers.Accounts()
	a.show("")
	return a
}

// RingChanged must be called after the store has changed the ring. It does not block.
func (a *Activator) RingChanged(ctx context.Context) {
	logger, ring := klog.FromContext(ctx), a.Ring.Ring()
	switch next := ring.Next(); {
	case !ring.ProofActivates():
	case next == nil:
		logger.Info("The key file contains the active key", "keyID", ring.ActiveID())
	default:
		logger.Info("Read a new signing key, which will sign once kube-apiserver accepts it", "keyID", next.ID())
	}
	a.show("")
	a.loop.AddIfRunning(probing)
}

// Status names the key that signs and says why the next one waits.
func (a *Activator) Status() string { return *a.status.Load() }

// Confirmed reports whether kube-apiserver has accepted this key last.
func (a *Activator) Confirmed(keyID string) bool { return *a.proven.Load() == keyID }

// MaySign returns an error if kube-apiserver has refused a token of the active key, because it would
// refuse further tokens too. If it cannot be asked, the last answer counts. MaySign does not block.
func (a *Activator) MaySign() error {
	if id := a.Ring.Ring().ActiveID(); *a.refused.Load() == id && !a.Confirmed(id) {
		return fmt.Errorf("kube-apiserver refuses tokens of key %s", id)
	}
	return nil
}

// Run probes the active key and, if proof activates it, every next key until ctx ends. The informers
// must be synced.
func (a *Activator) Run(ctx context.Context) error {
	// A probe may be interrupted.
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { stop(reconcile.ErrAtOnce) })()
	a.loop.Add(probing)
	a.loop.Run(running)
	return nil
}

// sync probes one key. A failed probe is no error of the loop, and is repeated with a backoff of its
// own: a key may wait for days.
func (a *Activator) sync(ctx context.Context, _ work) error {
	key, isNext := a.unproven()
	if key == nil {
		a.failure = failure{}
		return nil
	}
	err := a.kept(isNext)
	if err == nil {
		err = a.prove(ctx, key)
	}
	if ctx.Err() != nil {
		return ctx.Err() // interrupted
	}
	a.Metrics.probed(err)
	if err == nil {
		a.proven.Store(new(key.ID()))
		if isNext {
			a.activate(ctx, key)
		}
		a.show("")
		if a.Proven != nil {
			a.Proven()
		}
		a.loop.Add(probing) // there may be another one
		return nil
	}
	if IsRefusal(err) {
		a.refused.Store(new(key.ID()))
	}
	a.show(trouble(key, isNext, err))
	if reason := key.ID() + err.Error(); reason != a.failure.reported {
		a.failure.reported = reason
		a.report(ctx, key, isNext, err)
	}
	a.loop.AddAfter(probing, a.failure.next(fmt.Sprint(key.ID(), IsRefusal(err))))
	return nil
}

// kept returns an error if kube-apiserver takes its keys from this process, and the active key would
// be in no file once the next one is active: after a restart its tokens would be refused.
func (a *Activator) kept(isNext bool) error {
	active := a.Ring.Ring().ActiveID()
	if !isNext || a.Kept == nil || a.Kept(active) {
		return nil
	}
	return fmt.Errorf("key %s, which signs, is in no verification file: give it with --service-account-key-file first, or use --service-account-key-ring", active)
}

// failure describes the last failed probe.
type failure struct {
	kind     string
	reported string
	backoff  time.Duration
}

// next returns the delay of the next probe. Failures are distinguished by key and by whether
// kube-apiserver has refused it, not by text, which may have another port number each time.
func (f *failure) next(kind string) time.Duration {
	if kind != f.kind {
		f.kind, f.backoff = kind, firstBackoff
	}
	after := f.backoff
	f.backoff = min(2*f.backoff, maxBackoff)
	return after
}

// unproven returns the key to probe: the next key if proof activates it, or else the active key unless
// it is confirmed.
func (a *Activator) unproven() (key *signing.PrivateKey, isNext bool) {
	ring := a.Ring.Ring()
	if next := ring.Next(); next != nil && ring.ProofActivates() {
		return next, true
	}
	if active := ring.Active(); !a.Confirmed(active.ID()) {
		return active, false
	}
	return nil, false
}

func (a *Activator) activate(ctx context.Context, key *signing.PrivateKey) {
	if !a.Ring.Activate(key.ID()) {
		return // the next key was replaced meanwhile
	}
	klog.FromContext(ctx).Info("Activated a new signing key", "keyID", key.ID(), "algorithm", key.Public().Algorithm)
	a.Recorder.Normal(a.Process, "SigningKeyActivated", fmt.Sprintf("key %q signs from now on", key.ID()))
}

// report logs why a key is not proven.
func (a *Activator) report(ctx context.Context, key *signing.PrivateKey, isNext bool, err error) {
	logger := klog.FromContext(ctx)
	if isNext {
		logger.Info("The new key does not sign yet, the previous key still does", "keyID", key.ID(), "reason", err.Error())
		a.Recorder.Warn(a.Process, "SigningKeyWaits", fmt.Sprintf("key %q does not sign yet: %v", key.ID(), err))
		return
	}
	logger.Info("kube-apiserver has not confirmed the signing key", "keyID", key.ID(), "reason", err.Error())
	if IsRefusal(err) {
		a.Recorder.Warn(a.Process, "SigningKeyRefused", fmt.Sprintf(
			"the apiserver refuses tokens signed with key %q: %v; is its public key in the apiserver's --service-account-key-file?", key.ID(), err))
	}
	if _, ok := errors.AsType[wrongIssuerError](err); ok {
		a.Recorder.Warn(a.Process, "WrongServiceAccountIssuer", err.Error())
	}
}

// trouble returns what Status says about a key that is not proven.
func trouble(key *signing.PrivateKey, isNext bool, err error) string {
	if isNext {
		return fmt.Sprintf("the new key %s waits: %v", key.ID(), err)
	}
	return fmt.Sprintf("not confirmed by the apiserver: %v", err)
}

func (a *Activator) show(trouble string) {
	status := "key " + a.Ring.Ring().ActiveID() + " signs"
	if trouble != "" {
		status += "; " + trouble
	}
	a.status.Store(&status)
	a.Metrics.keys(a.Ring.Ring())
}
