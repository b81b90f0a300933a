// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keyprobe decides when a private key that was read from a changed
// file may sign.
//
// kube-apiserver reads its --service-account-key-file once, at its start. A token
// signed with a key that it has not read is dead, so a changed file must not sign
// at once: its key is the next one, and the active key goes on signing, until the
// apiserver itself has accepted a token signed with the next. The key that
// signs from the start is proved the same way, but only to warn about it.
//
// The proof is a TokenReview of a short bound token for a live account, addressed
// to an audience of our own, so that nobody could use it for anything else. A
// legacy token would prove nothing: without its Secret it is refused anyway.
//
// With a ring file, the command that changed it has brought the proof. Then the key
// that signs is whatever the file says, and is proved to warn as well.
//
// An apiserver that takes its keys from the ring, as with the external signer, would
// refuse the tokens of the former key after a restart. Whoever has not provided for
// that is warned when the key changes, while there is time.
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
	// Issuer is the apiserver's --service-account-issuer; "" has it looked up in
	// the apiserver's OIDC discovery document.
	Issuer string
	// Immediate lets the next key sign without proof.
	Immediate bool
	// Kept reports whether a key will verify after a restart too. It is nil if kube-apiserver does
	// not take its keys from the ring, so that it makes no difference.
	Kept func(keyID string) bool
	// Proven is called each time kube-apiserver has accepted another key than before, nil if nobody
	// waits for that. It must not block.
	Proven   func()
	Recorder *events.Recorder
	// Process is the object that Events about this process regard.
	Process *corev1.ObjectReference
	Metrics *Metrics
	Loops   *reconcile.Metrics
	Clock   clock.WithTicker
}

// Activator proves keys. Build it with New before the informers are started. RingChanged
// and Status may be called from any goroutine.
type Activator struct {
	Config
	accounts corev1listers.ServiceAccountLister
	loop     *reconcile.Runner[work]
	status   atomic.Pointer[string]
	proven   atomic.Pointer[string] // the key ID that was accepted last, "" before
	refused  atomic.Pointer[string] // the key ID that was refused last, "" before

	// Only the loop's one worker looks at what follows.
	failure failure
}

// work is the one key of the queue.
type work string

const probing work = "probe"

// New builds an activator that does not run yet.
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

// RingChanged takes note that the store has changed the ring. It does not block.
func (a *Activator) RingChanged(ctx context.Context) {
	if ring := a.Ring.Ring(); ring.ProofActivates() {
		a.found(ctx, ring)
	}
	a.show("")
	a.loop.AddIfRunning(probing)
}

// found says what has become of a changed key file.
func (a *Activator) found(ctx context.Context, ring *signing.Ring) {
	logger, next := klog.FromContext(ctx), ring.Next()
	switch {
	case next == nil:
		logger.Info("The key file holds the key that signs already", "keyID", ring.ActiveID())
	case a.Immediate:
		a.activate(ctx, next)
	default:
		logger.Info("Read a new signing key, it will sign once the apiserver accepts it", "keyID", next.ID())
	}
}

// Status says in a few words which key signs and what keeps the next one waiting.
func (a *Activator) Status() string { return *a.status.Load() }

// Confirmed reports whether that key ID is of the key that kube-apiserver has accepted last.
func (a *Activator) Confirmed(keyID string) bool { return *a.proven.Load() == keyID }

// MaySign is nil unless kube-apiserver has refused a token of the key that signs: the next ones
// would be dead too. One that cannot be asked has refused nothing. It does not block.
func (a *Activator) MaySign() error {
	if id := a.Ring.Ring().ActiveID(); !a.Immediate && *a.refused.Load() == id && !a.Confirmed(id) {
		return fmt.Errorf("kube-apiserver refuses tokens of key %s", id)
	}
	return nil
}

// Run proves the signing key and, if proof activates it, every next one until ctx ends.
// The informers must be synced.
func (a *Activator) Run(ctx context.Context) error {
	// Nothing is lost with a probe that is cut off.
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { stop(reconcile.ErrAtOnce) })()
	a.loop.Add(probing)
	a.loop.Run(running)
	return nil
}

// sync proves one key. What fails is tried again at the pace of this package, and is no
// failure of the loop's: a key may wait for days.
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
		return ctx.Err() // it was cut off
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

// kept is nil unless the key that signs would be in no file once the next one signs, and
// kube-apiserver takes its keys from the ring: its tokens would be dead after a restart.
func (a *Activator) kept(isNext bool) error {
	active := a.Ring.Ring().ActiveID()
	if !isNext || a.Kept == nil || a.Kept(active) {
		return nil
	}
	return fmt.Errorf("key %s, which signs, is in no verification file: give it with --service-account-key-file first, or use --service-account-key-ring", active)
}

// failure is what the last probe has ended with.
type failure struct {
	kind     string
	reported string
	backoff  time.Duration
}

// next is when to try again. A refusal and an apiserver that cannot be asked are two kinds
// of failure; a text may differ in a port number each time.
func (f *failure) next(kind string) time.Duration {
	if kind != f.kind {
		f.kind, f.backoff = kind, firstBackoff
	}
	after := f.backoff
	f.backoff = min(2*f.backoff, maxBackoff)
	return after
}

// unproven is the key to prove now: the next one if proof activates it, then the one
// that signs.
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
	previous := a.Ring.Ring().ActiveID()
	if !a.Ring.Activate(key.ID()) {
		return // another file content has replaced the next key meanwhile
	}
	klog.FromContext(ctx).Info("A new key signs", "keyID", key.ID(), "algorithm", key.Public().Algorithm)
	a.Recorder.Normal(a.Process, "SigningKeyActivated", "Activate", fmt.Sprintf("key %q signs from now on", key.ID()))
	if a.Kept != nil && !a.Kept(previous) {
		klog.FromContext(ctx).Info("The former key is in no file, its tokens verify only until this process ends", "keyID", previous)
		a.Recorder.Warn(a.Process, "FormerKeyNotKept", "Activate", fmt.Sprintf(
			"tokens of key %q verify only until this process ends: give it with --service-account-key-file, or use --service-account-key-ring", previous))
	}
}

// report says once why a key is not proven.
func (a *Activator) report(ctx context.Context, key *signing.PrivateKey, isNext bool, err error) {
	logger := klog.FromContext(ctx)
	if isNext {
		logger.Info("The new key does not sign yet, the former one goes on", "keyID", key.ID(), "reason", err.Error())
		a.Recorder.Warn(a.Process, "SigningKeyWaits", "Activate", fmt.Sprintf("key %q does not sign yet: %v", key.ID(), err))
		return
	}
	logger.Info("The apiserver has not confirmed the signing key", "keyID", key.ID(), "reason", err.Error())
	if IsRefusal(err) {
		a.Recorder.Warn(a.Process, "SigningKeyRefused", "Verify", fmt.Sprintf(
			"the apiserver refuses tokens signed with key %q: %v; is its public key in the apiserver's --service-account-key-file?", key.ID(), err))
	}
	if _, ok := errors.AsType[wrongIssuerError](err); ok {
		a.Recorder.Warn(a.Process, "WrongServiceAccountIssuer", "Verify", err.Error())
	}
}

// trouble is what Status says about a key that is not proven.
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
