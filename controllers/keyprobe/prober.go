// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keyprobe proves that kube-apiserver accepts the key that signs. kube-apiserver reads its
// --service-account-key-file only at startup, and refuses tokens of keys that it has not read.
//
// The rule "may this key sign" has its home in signing.Guard. This package adds what kube-apiserver says:
// not while it refuses the key (MaySign), and no token that does not expire before its first answer
// (MayFill). A key that was accepted is proved again every three minutes and after each reconnect, and a
// refusal takes the earlier proof back. With a key ring, package keyring/hosts adds what the rings
// of other replicas say.
//
// The probe is a TokenReview of a short bound token for an existing account. Its audience is our own,
// so the token opens nothing. A legacy token would prove nothing: without its Secret it is refused.
//
// Which key signs is decided by the private key file at the start, or by the key ring file, whose
// command has asked kube-apiserver. The probe only finds a key that is refused.
package keyprobe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/notify"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/series"
	"sa-controller-manager/signing"
)

const (
	maxBackoff = 30 * time.Second

	// provePeriod is how often the active key is proved again. A kube-apiserver that is restarted with
	// other keys is asked as soon as it answers.
	provePeriod = 3 * time.Minute

	// firstAnswer is how long token Secrets wait while kube-apiserver does not say whether it accepts
	// the key.
	firstAnswer = 30 * time.Second
)

// firstBackoff delays the next probe after the first failure of a kind: by its key and by whether kube-apiserver has refused
// that, not by text, which may have another port number each time.
var firstBackoff = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: maxBackoff}

// failure describes the last failed probe.
type failure struct {
	kind    string
	backoff wait.Backoff
}

// Config is what a Prober needs.
type Config struct {
	Client    kubernetes.Interface
	Informers *informers.Informers
	Ring      *signing.Keyring
	// Issuer is kube-apiserver's --service-account-issuer. If it is "", it is looked up in
	// kube-apiserver's OIDC discovery document.
	Issuer   string
	Recorder *events.Recorder
	// Process is the object that Events about this process regard.
	Process *corev1.ObjectReference
	Metrics *Metrics
	Loops   *reconcile.Metrics
}

// Prober proves the active key. Build it with New before the informers are started. All methods but Run may
// be called from any goroutine, and none of them blocks.
type Prober struct {
	Config

	// Proven notifies of the ID of each key that kube-apiserver has accepted, if it is another one than before.
	Proven notify.Change[string]

	accounts corev1listers.ServiceAccountLister
	loop     *reconcile.Runner[string]
	problem  atomic.Pointer[string] // why the active key is not proven, as the end of Status
	answer   atomic.Pointer[answer] // the last one about a key that signs

	// Only the worker of the loop uses the fields below.
	failure failure
	unasked struct { // the active key without an answer
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

// activeKey is the one key of the queue.
const activeKey = "active"

// New returns a Prober that does not run yet.
func New(config Config) *Prober {
	a := &Prober{Config: config}
	a.loop = reconcile.New(reconcile.Config[string]{Name: "key_probe", Workers: 1, Sync: a.sync, Metrics: config.Loops})
	a.answer.Store(&answer{})
	a.accounts, _ = config.Informers.Accounts()
	config.Ring.Changed.Subscribe(a.ringChanged)
	a.show("")
	return a
}

func (a *Prober) ringChanged(*signing.Ring) {
	a.show("")
	if !a.Confirmed(a.Ring.Ring().ActiveID()) {
		a.loop.AddIfRunning(activeKey)
	}
}

// Reconnected has the active key proved again: another kube-apiserver, or one that was restarted with
// other keys, may answer now.
func (a *Prober) Reconnected() { a.loop.AddIfRunning(activeKey) }

// Status names the key that signs and says what is not proven.
func (a *Prober) Status() string {
	if id := a.Ring.Ring().ActiveID(); id != "" {
		return "key " + id + " signs" + *a.problem.Load()
	}
	return "no key signs"
}

// Confirmed reports whether the last probe found that kube-apiserver accepts this key.
func (a *Prober) Confirmed(keyID string) bool {
	last := a.answer.Load()
	return last.keyID == keyID && last.accepted
}

// MaySign returns an error if kube-apiserver has refused a token of the active key, because it would
// refuse further tokens too. If it cannot be asked, the last answer counts.
func (a *Prober) MaySign() error {
	if last := a.answer.Load(); last.keyID == a.Ring.Ring().ActiveID() && last.refused != nil {
		return last.refused
	}
	return nil
}

// MayFill is MaySign for tokens that do not expire, and that nothing replaces once they are in a Secret.
// They wait for the first answer about the active key, as long as kube-apiserver can be asked for one.
func (a *Prober) MayFill() error {
	last, id := a.answer.Load(), a.Ring.Ring().ActiveID()
	if last.keyID != id {
		return fmt.Errorf("kube-apiserver has not said yet whether it accepts key %s: %w", id, reconcile.ErrStaleCache)
	}
	return cmp.Or(last.refused, last.wait)
}

// Run probes the active key until ctx ends. The informers must be synced.
func (a *Prober) Run(ctx context.Context) error {
	// A probe may be interrupted.
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { stop(reconcile.ErrAtOnce) })()
	a.loop.Add(activeKey)
	a.loop.Run(running)
	return nil
}

// sync probes the key. A failed probe does not fail the sync; it is retried with its own backoff: a key may be refused
// for days.
func (a *Prober) sync(ctx context.Context, _ string) error {
	key := a.Ring.Ring().Active()
	if key == nil {
		return nil // it was revoked, and nothing signs
	}
	err := a.prove(ctx, key)
	if ctx.Err() != nil {
		return ctx.Err() // interrupted
	}
	a.Metrics.probed(err)
	if err == nil {
		a.failure = failure{}
		a.accept(key.ID())
		return nil
	}
	if kind := fmt.Sprintf("%s %T %s", key.ID(), err, apierrors.ReasonForError(err)); kind != a.failure.kind {
		a.failure = failure{kind: kind, backoff: firstBackoff}
		a.report(ctx, key, err)
	}
	retry := min(a.failure.backoff.Step(), a.deny(ctx, key, err))
	a.show("; not confirmed by kube-apiserver: " + err.Error())
	a.loop.AddAfter(activeKey, retry)
	return nil
}

// accept notes that kube-apiserver accepts the tokens of a key.
func (a *Prober) accept(id string) {
	first := !a.Confirmed(id)
	a.answer.Store(&answer{keyID: id, accepted: true})
	a.show("")
	if first {
		a.Proven.Notify(id)
	}
	a.loop.AddAfter(activeKey, provePeriod)
}

// deny records why the active key is unproven and returns the deadline for the next result.
func (a *Prober) deny(ctx context.Context, key *signing.PrivateKey, err error) time.Duration {
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
		a.answer.Store(&answer{keyID: id,
			wait: fmt.Errorf("this process may not ask kube-apiserver whether it accepts key %s: %w", id, err)})
	case otherIssuer: // tokens of Secrets have an issuer of their own
		a.answer.Store(&answer{keyID: id})
	case a.answer.Load().keyID == id:
		// The last answer counts.
	case left > 0:
		return left
	default:
		klog.FromContext(ctx).Info("Warning: filling token Secrets although kube-apiserver does not say whether it accepts the key",
			"keyID", id)
		a.answer.Store(&answer{keyID: id})
	}
	return maxBackoff
}

// report logs why a key is not proven.
func (a *Prober) report(ctx context.Context, key *signing.PrivateKey, err error) {
	klog.FromContext(ctx).Info("kube-apiserver has not confirmed the signing key", "keyID", key.ID(), "reason", err.Error())
	if IsRefusal(err) {
		a.Recorder.Warn(a.Process, "SigningKeyRefused", fmt.Sprintf(
			"kube-apiserver refuses tokens signed with key %q: %v; is its public key in a key file of kube-apiserver?",
			key.ID(), err))
	}
	if _, ok := errors.AsType[wrongIssuerError](err); ok {
		a.Recorder.Warn(a.Process, "WrongServiceAccountIssuer", err.Error())
	}
}

// show sets what is wrong with the key that signs.
func (a *Prober) show(problem string) {
	a.problem.Store(&problem)
	a.Metrics.keys(a.Ring.Ring())
}

// Metrics show which keys are loaded and how their proofs went.
type Metrics struct {
	loaded *metrics.GaugeVec
	probes *metrics.CounterVec
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	return &Metrics{
		loaded: series.GaugeVec(mustRegister, "sacm_signing_key",
			"1 for each key of the ring, by key ID, algorithm and state: active signs, next signs later, retired verifies only.",
			"key_id", "algorithm", "state"),
		probes: series.CounterVec(mustRegister, "sacm_signing_key_probes_total",
			"TokenReviews of probes of a signing key, by result: accepted, refused, or unknown if kube-apiserver did not answer.",
			"result"),
	}
}

func (m *Metrics) keys(ring *signing.Ring) {
	m.loaded.Reset()
	for _, key := range ring.All() {
		if key.Role != signing.VerifyOnly {
			m.loaded.WithLabelValues(key.ID, key.Algorithm, string(key.Role)).Set(1)
		}
	}
}

func (m *Metrics) probed(err error) {
	result := "accepted"
	if err != nil {
		result = "unknown"
	}
	if IsRefusal(err) {
		result = "refused"
	}
	m.probes.WithLabelValues(result).Inc()
}
