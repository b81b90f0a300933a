// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
)

const (
	// publisherQueue is upstream's name
	// (pkg/controller/certificates/rootcacertpublisher/publisher.go).
	publisherQueue = "root_ca_cert_publisher"

	// workers is more than upstream's one, because a worker mostly waits for kube-apiserver.
	workers = 8

	// createdCheck is how long the watch has to show a created ConfigMap.
	createdCheck = time.Second
)

// PublisherConfig is what a Publisher needs. Clock may be nil.
type PublisherConfig struct {
	Client    kubernetes.Interface
	Informers *informers.Informers
	Source    *Source
	Recorder  *events.Recorder
	Metrics   *Metrics
	Loops     *reconcile.Metrics
	Clock     clock.WithTicker
}

// Publisher keeps ConfigMap kube-root-ca.crt in every Active namespace. Build it with
// NewPublisher before the informers are started.
type Publisher struct {
	PublisherConfig

	namespaces        corev1listers.NamespaceLister
	configMaps        informers.RootCALister
	namespaceInformer cache.SharedIndexInformer
	configMapInformer cache.SharedIndexInformer
	queue             *reconcile.Runner[string]
}

// NewPublisher builds a Publisher that does not run yet.
func NewPublisher(config PublisherConfig) *Publisher {
	config.Clock = cmp.Or[clock.WithTicker](config.Clock, clock.RealClock{})
	p := &Publisher{PublisherConfig: config}
	p.namespaces, p.namespaceInformer = config.Informers.Namespaces()
	p.configMaps, p.configMapInformer = config.Informers.RootCAs()
	p.queue = reconcile.New(reconcile.Config[string]{
		Name: publisherQueue, Workers: workers, Metrics: config.Loops, Clock: config.Clock,
		Sync: func(ctx context.Context, namespace string) error { return p.sync(ctx, namespace, false) },
	})
	replace := func(ctx context.Context, object cache.ObjectName) error { return p.sync(ctx, object.Namespace, true) }
	config.Source.Register(corev1.ResourceConfigMaps, replace)
	config.Source.Changed.Subscribe(p.queueAll)
	config.Source.aloneChanged.Subscribe(p.queueAll)
	return p
}

// Run works until ctx ends and returns when no sync is under way any more. The informers must
// be synced. Registering the handlers replays the whole cache, so every namespace is synced
// once at the start. Run may be called again once it has returned.
func (p *Publisher) Run(ctx context.Context) error {
	return reconcile.WithHandlers(ctx, func() { p.queue.Run(ctx) }, reconcile.Handled{
		What:     "namespaces",
		Informer: p.namespaceInformer,
		Handler:  reconcile.OnEveryName(func(name cache.ObjectName) { p.queue.Add(name.Name) }),
	},
		reconcile.Handled{What: "configmaps", Informer: p.configMapInformer, Handler: p.configMapHandler()})
}

func (p *Publisher) configMapHandler() cache.ResourceEventHandler {
	handler := reconcile.OnEveryName(func(name cache.ObjectName) { p.queue.Add(name.Namespace) })
	update := handler.UpdateFunc
	handler.UpdateFunc = func(old, obj any) {
		before, after := old.(*informers.RootCA), obj.(*informers.RootCA)
		if bundle, _ := p.Source.Current(); bundle.Replaced(before.Hash, after.Hash) {
			p.Metrics.Replaced(corev1.ResourceConfigMaps)
		}
		update(old, obj)
	}
	return handler
}

// queueAll is called when the bundle has changed, on every replica. Run queues all namespaces
// at its start.
func (p *Publisher) queueAll(*Bundle) {
	namespaces, _ := p.namespaces.List(labels.Everything()) // a lister in memory has no error
	for _, namespace := range namespaces {
		p.queue.AddIfRunning(namespace.Name)
	}
}

func (p *Publisher) sync(ctx context.Context, namespace string, replace bool) error {
	began := p.Clock.Now()
	err := p.publish(ctx, namespace, replace)
	p.Metrics.observe(p.Clock.Since(began), err)
	return err
}

// publish changes nothing before the bundle is known: then all namespaces are queued. Where there is a
// bundle it writes only if replace is set, by the rate-limited rollout.
func (p *Publisher) publish(ctx context.Context, name string, replace bool) error {
	namespace, err := p.namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up namespace %q: %w", name, err)
	}
	found := p.configMaps.Get(name)
	bundle, unread := p.Source.Current()
	if unread != nil && found == nil {
		bundle = p.Source.alone.Load()
	}
	action := planConfigMap(namespace.Status.Phase == corev1.NamespaceActive, found, bundle)
	delay := p.Source.Delay(corev1.ResourceConfigMaps, cache.NewObjectName(name, informers.RootCAName))
	if delay > 0 && (action == create || action == update) {
		p.queue.AddAfter(name, delay)
		return nil
	}
	switch action {
	case create:
		return p.create(ctx, name, bundle)
	case update:
		if !found.Has || replace {
			return p.update(ctx, found, bundle)
		}
		p.Source.QueueWrite(corev1.ResourceConfigMaps, cache.NewObjectName(name, informers.RootCAName))
	case refuse:
		p.Recorder.Warn(found.Reference(), "ImmutableRootCA",
			"the ConfigMap is immutable and does not hold the root CA bundle as it is now: delete it, it is created again at once")
	case none:
	}
	return nil
}

// create sends one request without a read, and is checked on: a ConfigMap that is created and deleted
// while the watch is interrupted causes no event. A namespace that is gone or terminating needs none.
func (p *Publisher) create(ctx context.Context, namespace string, bundle *Bundle) error {
	configMap := render(metav1.ObjectMeta{Namespace: namespace, Name: informers.RootCAName}, bundle)
	answer, err := p.Client.CoreV1().ConfigMaps(namespace).Create(ctx, configMap, metav1.CreateOptions{FieldManager: meta.FieldManager})
	switch {
	case err == nil:
		p.queue.AddAfter(namespace, createdCheck)
		return p.wrote(ctx, answer, bundle, true)
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%w: %w", reconcile.ErrStaleCache, err)
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	default:
		return fmt.Errorf("create configmap %s/%s: %w", namespace, informers.RootCAName, err)
	}
}

// update overwrites the cached version: a newer one is a conflict, and the watch brings a deletion.
func (p *Publisher) update(ctx context.Context, found *informers.RootCA, bundle *Bundle) error {
	configMap := render(found.ObjectMeta, bundle)
	answer, err := p.Client.CoreV1().ConfigMaps(found.Namespace).Update(ctx, configMap,
		metav1.UpdateOptions{FieldManager: meta.FieldManager})
	switch {
	case err == nil:
		return p.wrote(ctx, answer, bundle, false)
	case apierrors.IsNotFound(err):
		return nil
	default:
		return fmt.Errorf("update configmap %s/%s: %w", found.Namespace, found.Name, err)
	}
}

// wrote checks the answer to a write: an admission policy of others may have changed it. The handler counts what other
// clients replace later, and does not see that they delete it.
func (p *Publisher) wrote(ctx context.Context, answer *corev1.ConfigMap, bundle *Bundle, created bool) error {
	stored := informers.ObserveRootCA(answer)
	again := p.Source.Wrote(corev1.ResourceConfigMaps, cache.MetaObjectToName(answer))
	kept := planConfigMap(true, stored, bundle) == none
	if again || !kept {
		p.Recorder.Warn(stored.Reference(), ReasonReplaced, NoteReplaced)
	}
	if again && created || !kept {
		p.Metrics.Replaced(corev1.ResourceConfigMaps)
	}
	if !kept {
		return fmt.Errorf("write configmap %s/%s: kube-apiserver has stored another content than was sent, "+
			"look for an admission policy or webhook that changes it", answer.Namespace, answer.Name)
	}
	klog.FromContext(ctx).V(2).Info("Published the root CA", "configMap", klog.KObj(answer), "again", !created)
	return nil
}
