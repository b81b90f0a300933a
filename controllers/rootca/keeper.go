// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
)

const (
	keeperQueue = "root_ca_overlap"

	// maxProvisional is how long what is published is left alone while the state cannot
	// be read. An outage of the API is shorter; a permission that is missing would
	// otherwise keep a changed root CA from everybody.
	maxProvisional = 5 * time.Minute

	// requestTimeout keeps an API that does not answer from holding up what the time or
	// the file decides.
	requestTimeout = 10 * time.Second

	// raceDelay is when to look again after somebody else was faster to write.
	raceDelay = time.Second
)

// KeeperConfig is what a Keeper needs. Clock may be nil.
type KeeperConfig struct {
	Client kubernetes.Interface
	// Source gets every bundle that is to be published.
	Source *Source
	// File is the bundle to begin with; Offer replaces it.
	File *Bundle
	// Overlap is how long a former root CA is published beside its successor; 0 means
	// not at all.
	Overlap  time.Duration
	Recorder *events.Recorder
	// Process is what Events are about.
	Process *corev1.ObjectReference
	Loops   *reconcile.Metrics
	Clock   clock.WithTicker
}

// Keeper decides which bundle is in force. Build it with NewKeeper; only the leader
// runs it, because it writes the state.
type Keeper struct {
	KeeperConfig

	file  atomic.Pointer[Bundle]
	leads atomic.Bool
	loop  *reconcile.Runner[string]

	// Only the loop's one worker uses what follows.
	known  state     // what was decided last, or zero
	met    bool      // the state was read, or found to be missing, once
	stored bool      // there was a ConfigMap when it was looked at or written last
	began  time.Time // the first look, or zero
	first  *Bundle   // the file at the first look
}

// NewKeeper has the Source publish the file provisionally until Run has looked at the
// state.
func NewKeeper(config KeeperConfig) *Keeper {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	k := &Keeper{KeeperConfig: config}
	k.file.Store(config.File)
	k.loop = reconcile.New(reconcile.Config[string]{Name: keeperQueue, Workers: 1, Sync: k.sync, Metrics: config.Loops, Clock: config.Clock})
	k.provisionally()
	return k
}

// provisionally is for who does not lead: when it does, other controllers start beside
// this one and take what the Source has. It is the file, and while an overlap may be
// under way nothing that is published is replaced by it.
func (k *Keeper) provisionally() {
	bundle := k.file.Load()
	if k.Overlap > 0 {
		bundle = bundle.Provisional()
	}
	k.Source.Set(bundle)
}

// Offer hands over the content of a changed file. It does not block and may be called
// from any goroutine, also on a replica that does not lead.
func (k *Keeper) Offer(bundle *Bundle) {
	k.file.Store(bundle)
	if !k.leads.Load() {
		k.provisionally()
	}
	k.loop.AddIfRunning(StateName) // or else Run begins with the file as it is then
}

// Run works until ctx ends. It may be called again once it has returned: then somebody
// else may have written the state meanwhile, so it is read anew.
func (k *Keeper) Run(ctx context.Context) error {
	k.known, k.met, k.stored, k.began, k.first = state{}, false, false, time.Time{}, nil
	informer, err := k.newInformer()
	if err != nil {
		return fmt.Errorf("watch configmap %s/%s: %w", StateNamespace, StateName, err)
	}
	k.leads.Store(true)
	defer func() {
		k.leads.Store(false)
		k.provisionally()
	}()
	k.loop.Add(StateName)
	var watching sync.WaitGroup
	watching.Go(func() { informer.RunWithContext(ctx) })
	k.loop.Run(ctx)
	reconcile.AwaitWatches(watching.Wait)
	return nil
}

// sync publishes first and writes the state then. A crash in between loses nothing: the
// state still names the former file as current, so the next start begins the overlap.
func (k *Keeper) sync(ctx context.Context, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	file := k.file.Load()
	if k.began.IsZero() {
		k.began, k.first = k.Clock.Now(), file
	}
	object, err := k.get(ctx)
	if err == nil {
		err = k.learn(ctx, object)
	}
	now := k.Clock.Now()
	decided := plan(file, k.known, now, k.Overlap)
	k.publish(ctx, decided, now)
	if err == nil {
		err = k.write(ctx, object, decided.state)
	}
	if err != nil {
		k.complain(err)
	}
	if !decided.next.IsZero() {
		k.loop.AddAfter(StateName, decided.next.Sub(now))
	}
	return err
}

// get is the state's ConfigMap as the API has it now, nil if there is none.
func (k *Keeper) get(ctx context.Context) (*corev1.ConfigMap, error) {
	object, err := k.Client.CoreV1().ConfigMaps(StateNamespace).Get(ctx, StateName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read configmap %s/%s: %w", StateNamespace, StateName, err)
	}
	return object, nil
}

// learn takes what the state says the first time it can be read. After that this
// process is the only one that writes it and knows better.
func (k *Keeper) learn(ctx context.Context, object *corev1.ConfigMap) error {
	var found reading
	if object != nil {
		found = read(object, k.Clock.Now(), k.Overlap)
	}
	if found.foreign != "" {
		return foreignError{found.foreign}
	}
	damage := strings.Join(found.damage, "; ")
	if object == nil && k.stored {
		damage = "it was deleted"
	}
	k.stored = object != nil
	if damage != "" {
		klog.FromContext(ctx).Info("The state of the root CA is damaged and is written again", "configMap", stateRef(), "damage", damage)
		k.Recorder.Warn(stateObject(), "RootCAStateRepaired", "Repair", "wrote it again: "+damage)
	}
	if !k.met {
		k.known, k.met = merge(found.state, k.known), true
	}
	return nil
}

// publish hands the decided bundle to the Source and tells what it means.
func (k *Keeper) publish(ctx context.Context, decided decision, now time.Time) {
	k.known = decided.state
	bundle := decided.published
	if k.provisional(now) {
		bundle = bundle.Provisional()
	}
	if current := k.Source.Current(); current == nil || !bundle.same(current) {
		k.Source.Set(bundle)
	}
	k.tell(ctx, decided)
}

// provisional tells whether something may be published of which this process does not
// know, so that it must be left alone. Who changes the file while we run wants that to
// reach everybody.
func (k *Keeper) provisional(now time.Time) bool {
	return !k.met && k.file.Load() == k.first && now.Before(k.began.Add(min(k.Overlap, maxProvisional)))
}

// write makes the ConfigMap hold the wanted state.
func (k *Keeper) write(ctx context.Context, object *corev1.ConfigMap, wanted state) error {
	next := wanted.writeInto(object)
	if next == nil {
		return nil
	}
	configMaps := k.Client.CoreV1().ConfigMaps(StateNamespace)
	var err error
	if object == nil {
		_, err = configMaps.Create(ctx, next, metav1.CreateOptions{FieldManager: meta.FieldManager})
	} else {
		_, err = configMaps.Update(ctx, next, metav1.UpdateOptions{FieldManager: meta.FieldManager})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		k.loop.AddAfter(StateName, raceDelay)
		return nil
	}
	if err != nil {
		return fmt.Errorf("write configmap %s/%s: %w", StateNamespace, StateName, err)
	}
	k.stored = true
	klog.FromContext(ctx).V(2).Info("Wrote the state of the root CA", "configMap", stateRef(), "inOverlap", len(wanted.formers))
	return nil
}

func stateRef() klog.ObjectRef { return klog.KRef(StateNamespace, StateName) }

func stateObject() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: StateNamespace, Name: StateName}
}
