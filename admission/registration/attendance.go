// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
)

// unreadyDelay is how soon a replica that was asked too early looks at itself again.
const unreadyDelay = time.Second

// AttendanceConfig is what an Attendance needs. Clock may be nil.
type AttendanceConfig struct {
	Client kubernetes.Interface
	// Host is the name of this host, as kube-apiserver on it would write it into its
	// identity Lease.
	Host string
	// Spec is what this replica would register. Who is asked for another endpoint is silent.
	Spec Spec
	// Ready is nil once calls can be answered.
	Ready func() error
	Clock clock.WithTicker
}

// Attendance answers the leader's roll call for this host: there is a replica here that
// serves the webhook. Every replica runs one. It writes only when it is asked.
type Attendance struct {
	config   AttendanceConfig
	informer cache.SharedIndexInformer
	queue    workqueue.TypedRateLimitingInterface[string]
	writes   *rate.Limiter
	// changed is told of each change of the roll call. It must not block.
	changed func()
}

// NewAttendance returns an Attendance that knows nothing until Run has begun.
func NewAttendance(config AttendanceConfig) *Attendance {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	return &Attendance{
		config: config,
		informer: corev1informers.NewFilteredConfigMapInformer(config.Client, RollCallNamespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, RollCallName).String()
		}),
		writes:  rate.NewLimiter(rate.Every(writeInterval), writeBurst),
		changed: func() {},
	}
}

// Run works until ctx ends. It is called once.
func (a *Attendance) Run(ctx context.Context) error {
	a.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstBackoff, maxBackoff),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "webhook_roll_call", Clock: a.config.Clock},
	)
	defer a.queue.ShutDown()
	defer context.AfterFunc(ctx, a.queue.ShutDown)()
	look := func(any) {
		a.queue.Add(RollCallName)
		a.changed()
	}
	handler, err := a.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }, DeleteFunc: look,
	})
	if err != nil {
		return fmt.Errorf("watch configmap %s/%s: %w", RollCallNamespace, RollCallName, err)
	}
	var watching sync.WaitGroup
	watching.Go(func() { a.informer.RunWithContext(ctx) })
	defer reconcile.AwaitWatches(watching.Wait)
	select {
	case <-ctx.Done():
	case <-handler.HasSyncedChecker().Done():
		// That there is none yet is told by no event.
		a.changed()
	}
	for {
		key, shutdown := a.queue.Get()
		if shutdown {
			return nil
		}
		a.look(ctx, key)
	}
}

func (a *Attendance) look(ctx context.Context, key string) {
	defer a.queue.Done(key)
	after, err := a.sync(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		klog.FromContext(ctx).Info("The roll call is not answered yet, trying again", "err", err)
		a.queue.AddRateLimited(key)
	default:
		a.queue.Forget(key)
		if after > 0 {
			a.queue.AddAfter(key, after)
		}
	}
}

// sync answers if that is owed, and tells when to look again, zero for never. Who loses a
// race is told by the watch what to answer then.
func (a *Attendance) sync(ctx context.Context) (time.Duration, error) {
	found := a.found()
	asked := readRollCall(found)
	if asked.round == "" || asked.endpoint != a.config.Spec.Endpoint("") || asked.answered(a.config.Host, asked.round) {
		return 0, nil
	}
	if err := a.config.Ready(); err != nil {
		klog.FromContext(ctx).V(2).Info("The roll call waits until this replica is ready", "reason", err.Error())
		return unreadyDelay, nil
	}
	if !a.writes.AllowN(a.config.Clock.Now(), 1) {
		return writeInterval, nil
	}
	_, err := a.config.Client.CoreV1().ConfigMaps(RollCallNamespace).Update(ctx, answers(found, a.config.Host), metav1.UpdateOptions{FieldManager: meta.FieldManager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return lookAgain, nil
	}
	if err != nil {
		return 0, fmt.Errorf("write the answer of host %s into configmap %s/%s: %w", a.config.Host, RollCallNamespace, RollCallName, err)
	}
	klog.FromContext(ctx).V(2).Info("Answered the roll call", "host", a.config.Host, "round", asked.round)
	return 0, nil
}

// found is the ConfigMap as the watch has it, nil for none. It is not to be changed.
func (a *Attendance) found() *corev1.ConfigMap {
	object, exists, err := a.informer.GetStore().GetByKey(RollCallNamespace + "/" + RollCallName)
	if err != nil || !exists {
		return nil
	}
	found, _ := object.(*corev1.ConfigMap)
	return found
}

func (a *Attendance) synced() bool { return a.informer.HasSynced() }
