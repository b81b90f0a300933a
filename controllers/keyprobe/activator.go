// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keyprobe proves that kube-apiserver accepts a signing key, and activates the new key of a
// changed key file once it does.
//
// kube-apiserver reads its --service-account-key-file only at startup, and refuses tokens of keys that
// it has not read. So the key of a changed file becomes the next key, and the active key goes on
// signing until kube-apiserver has accepted a token of the next key.
//
// The rule "may this key sign" has its home in signing.Guard. This package adds what kube-apiserver says:
// not while it refuses the key (MaySign), and no token that does not expire before its first answer
// (MayFill). A key that was accepted is proved again every three minutes and after each reconnect, and a
// refusal takes the earlier proof back. With a key ring, package keyring/consistency adds what the rings
// of other replicas say.
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
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/signing"
)

const (
	queueName = "key_probe"

	firstBackoff = time.Second
	maxBackoff   = 30 * time.Second

	// provePeriod is how often the active key is proved again. A kube-apiserver that is restarted with
	// other keys is asked as soon as it answers.
	provePeriod = 3 * time.Minute

	// firstAnswer is how long token Secrets wait while kube-apiserver does not say whether it accepts
	// the key.
	firstAnswer = 30 * time.Second
)

// Config is what an Activator needs.
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
}

// Activator probes keys. Build it with New before the informers are started. All methods but Run may be
// called from any goroutine, and none of them blocks.
type Activator struct {
	Config
	accounts corev1listers.ServiceAccountLister
	loop     *reconcile.Runner[work]
	status   atomic.Pointer[string]
	answer   atomic.Pointer[answer] // the last one about a key that signs

	mu       sync.Mutex
	problems map[work]string // why a key is not proven, for Status

	// Only the worker of the loop uses the fields below.
	failures map[work]*failure
	unasked  struct { // the active key without an answer
		keyID string
		since time.Time
	}
}

// answer is what kube-apiserver has said of a key.
type answer struct {
	keyID    string
	accepted bool
	// refused forbids every token, wait only those that do not expire. Both are nil if they may be signed.
	refused, wait error
}

// work is a key of the queue.
type work string

const (
	activeKey work = "active"
	nextKey   work = "next"
)

// New returns an Activator that does not run yet.
func New(config Config) *Activator {
	a := &Activator{
		Config:   config,
		problems: map[work]string{},
		failures: map[work]*failure{activeKey: {}, nextKey: {}},
	}
	a.loop = reconcile.New(reconcile.Config[work]{Name: queueName, Workers: 1, Sync: a.sync, Metrics: config.Loops})
	a.answer.Store(&answer{})
	a.accounts, _ = config.Informers.Accounts()
	a.show()
	return a
}

// RingChanged must be called after the store has changed the ring.
func (a *Activator) RingChanged(ctx context.Context) {
	logger, ring := klog.FromContext(ctx), a.Ring.Ring()
	switch next := ring.Next(); {
	case !ring.ProofActivates():
	case next == nil:
		logger.Info("The key file contains the active key", "keyID", ring.ActiveID())
	default:
		logger.Info("Read a new signing key, which will sign once kube-apiserver accepts it", "keyID", next.ID())
	}
	a.clear(activeKey)
	a.clear(nextKey)
	a.loop.AddIfRunning(nextKey)
	if !a.Confirmed(ring.ActiveID()) {
		a.loop.AddIfRunning(activeKey)
	}
}

// Reconnected has the active key proved again: another kube-apiserver, or one that was restarted with
// other keys, may answer now.
func (a *Activator) Reconnected() { a.loop.AddIfRunning(activeKey) }

// Status names the key that signs and says what is not proven.
func (a *Activator) Status() string { return *a.status.Load() }

// Confirmed reports whether kube-apiserver has accepted this key last.
func (a *Activator) Confirmed(keyID string) bool {
	last := a.answer.Load()
	return last.keyID == keyID && last.accepted
}

// MaySign returns an error if kube-apiserver has refused a token of the active key, because it would
// refuse further tokens too. If it cannot be asked, the last answer counts.
func (a *Activator) MaySign() error {
	if last := a.answer.Load(); last.keyID == a.Ring.Ring().ActiveID() && last.refused != nil {
		return last.refused
	}
	return nil
}

// MayFill is MaySign for tokens that do not expire, and that nothing replaces once they are in a Secret.
// They wait for the first answer about the active key, as long as kube-apiserver can be asked for one.
func (a *Activator) MayFill() error {
	last, id := a.answer.Load(), a.Ring.Ring().ActiveID()
	if last.keyID != id {
		return fmt.Errorf("kube-apiserver has not said yet whether it accepts key %s: %w", id, reconcile.ErrStaleCache)
	}
	return cmp.Or(last.refused, last.wait)
}

// Run probes the active key and, if proof activates it, every next key until ctx ends. The informers
// must be synced.
func (a *Activator) Run(ctx context.Context) error {
	// A probe may be interrupted.
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { stop(reconcile.ErrAtOnce) })()
	a.loop.Add(activeKey)
	a.loop.Add(nextKey)
	a.loop.Run(running)
	return nil
}

// sync probes one key. A failed probe is no error of the loop, and is repeated with a backoff of its
// own: a key may wait for days.
func (a *Activator) sync(ctx context.Context, which work) error {
	ring := a.Ring.Ring()
	key, kept := ring.Active(), error(nil)
	if which == activeKey && key == nil {
		return nil // it was revoked, and nothing signs
	}
	if which == nextKey {
		key, kept = ring.Next(), a.kept()
		if key == nil || !ring.ProofActivates() {
			*a.failures[nextKey] = failure{}
			return nil
		}
	}
	err := kept
	if err == nil {
		err = a.prove(ctx, key)
	}
	if ctx.Err() != nil {
		return ctx.Err() // interrupted
	}
	a.Metrics.probed(err)
	if err == nil {
		*a.failures[which] = failure{}
		a.accept(ctx, which, key)
		return nil
	}
	retry := a.failures[which].next(fmt.Sprint(key.ID(), IsRefusal(err)))
	if which == activeKey {
		retry = min(retry, a.deny(ctx, key, err))
	}
	a.set(which, describe(which, key, err))
	if reason := key.ID() + err.Error(); reason != a.failures[which].reported {
		a.failures[which].reported = reason
		a.report(ctx, key, which == nextKey, err)
	}
	a.loop.AddAfter(which, retry)
	return nil
}

// accept notes that kube-apiserver accepts the tokens of a key, and activates a next key.
func (a *Activator) accept(ctx context.Context, which work, key *signing.PrivateKey) {
	a.clear(which)
	if which == nextKey {
		if !a.Ring.Activate(key.ID()) {
			return // it was replaced meanwhile
		}
		klog.FromContext(ctx).Info("Activated a new signing key", "keyID", key.ID(), "algorithm", key.Public().Algorithm)
		a.Recorder.Normal(a.Process, "SigningKeyActivated", fmt.Sprintf("key %q signs from now on", key.ID()))
	}
	first := !a.Confirmed(key.ID())
	a.answer.Store(&answer{keyID: key.ID(), accepted: true})
	a.clear(activeKey)
	if first && a.Proven != nil {
		a.Proven()
	}
	a.loop.AddAfter(activeKey, provePeriod)
}

// deny notes why the active key is not proven, and returns when it has to be known at the latest.
func (a *Activator) deny(ctx context.Context, key *signing.PrivateKey, err error) time.Duration {
	id := key.ID()
	if a.unasked.keyID != id {
		a.unasked.keyID, a.unasked.since = id, time.Now()
	}
	_, otherIssuer := errors.AsType[wrongIssuerError](err)
	left := firstAnswer - time.Since(a.unasked.since)
	switch {
	case IsRefusal(err):
		a.answer.Store(&answer{keyID: id, refused: fmt.Errorf("kube-apiserver refuses tokens of key %s", id)})
	case apierrors.IsForbidden(err):
		a.answer.Store(&answer{keyID: id, wait: fmt.Errorf("this process may not ask kube-apiserver whether it accepts key %s: %w", id, err)})
	case otherIssuer: // tokens of Secrets have an issuer of their own
		a.answer.Store(&answer{keyID: id})
	case a.answer.Load().keyID == id:
		// The last answer counts.
	case left > 0:
		return left
	default:
		klog.FromContext(ctx).Info("Warning: filling token Secrets although kube-apiserver does not say whether it accepts the key", "keyID", id)
		a.answer.Store(&answer{keyID: id})
	}
	return maxBackoff
}

// kept returns an error if kube-apiserver takes its keys from this process, and the active key would
// be in no file once the next one is active: after a restart its tokens would be refused.
func (a *Activator) kept() error {
	active := a.Ring.Ring().ActiveID()
	if a.Kept == nil || a.Kept(active) {
		return nil
	}
	return fmt.Errorf("key %s, which signs, is in no verification file: "+
		"give it with --service-account-key-file first, or use --service-account-key-ring", active)
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
			"kube-apiserver refuses tokens signed with key %q: %v; is its public key in kube-apiserver's --service-account-key-file?",
			key.ID(), err))
	}
	if _, ok := errors.AsType[wrongIssuerError](err); ok {
		a.Recorder.Warn(a.Process, "WrongServiceAccountIssuer", err.Error())
	}
}

// describe returns what Status says about a key that is not proven.
func describe(which work, key *signing.PrivateKey, err error) string {
	if which == nextKey {
		return fmt.Sprintf("the new key %s waits: %v", key.ID(), err)
	}
	return fmt.Sprintf("not confirmed by kube-apiserver: %v", err)
}

func (a *Activator) clear(which work) { a.set(which, "") }

func (a *Activator) set(which work, problem string) {
	a.mu.Lock()
	a.problems[which] = problem
	a.mu.Unlock()
	a.show()
}

func (a *Activator) show() {
	status := "no key signs"
	if id := a.Ring.Ring().ActiveID(); id != "" {
		status = "key " + id + " signs"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, which := range []work{nextKey, activeKey} {
		if a.problems[which] != "" {
			status += "; " + a.problems[which]
		}
	}
	a.status.Store(&status)
	a.Metrics.keys(a.Ring.Ring())
}
