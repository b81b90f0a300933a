// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"fmt"

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
	pacing            pacing
}

// NewPublisher builds a Publisher that does not run yet.
func NewPublisher(config PublisherConfig) *Publisher {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	p := &Publisher{PublisherConfig: config}
	p.namespaces, p.namespaceInformer = config.Informers.Namespaces()
	p.configMaps, p.configMapInformer = config.Informers.RootCAs()
	p.queue = reconcile.New(reconcile.Config[string]{
		Name: publisherQueue, Workers: workers, Sync: p.sync, Metrics: config.Loops, Clock: config.Clock,
	})
	p.pacing.reset()
	config.Source.OnChange(p.queueAll)
	config.Source.CountOutdated(corev1.ResourceConfigMaps, p.outdated)
	return p
}

// Run works until ctx ends and returns when no sync is under way any more. The informers must
// be synced. Registering the handlers replays the whole cache, so every namespace is synced
// once at the start. Run may be called again once it has returned.
func (p *Publisher) Run(ctx context.Context) error {
	p.pacing.reset()
	return reconcile.WithHandlers(func() { p.queue.Run(ctx) },
		reconcile.Handled{
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
		if p.Source.Current().Replaced(before.Hash, after.Hash) {
			p.Metrics.Replaced(corev1.ResourceConfigMaps)
		}
		update(old, obj)
	}
	return handler
}

// queueAll is called when the bundle has changed, on every replica. Run queues all namespaces
// at its start.
func (p *Publisher) queueAll() {
	namespaces, err := p.namespaces.List(labels.Everything())
	if err != nil {
		return // a lister in memory has no error
	}
	p.pacing.reset() // no write was undone
	for _, namespace := range namespaces {
		p.queue.AddIfRunning(namespace.Name)
	}
}

// outdated counts the ConfigMaps with another bundle that can be updated.
func (p *Publisher) outdated(bundle *Bundle) int {
	n := 0
	for _, found := range p.configMaps.All() {
		if planConfigMap(false, found, bundle) == update && found.Has && found.Hash != bundle.hash {
			n++
		}
	}
	return n
}

func (p *Publisher) sync(ctx context.Context, namespace string) error {
	began := p.Clock.Now()
	err := p.publish(ctx, namespace)
	p.Metrics.observe(p.Clock.Since(began), err)
	return err
}

func (p *Publisher) publish(ctx context.Context, name string) error {
	namespace, err := p.namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		p.pacing.forget(name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up namespace %q: %w", name, err)
	}
	if wait := p.pacing.wait(name, p.Clock.Now()); wait > 0 {
		p.queue.AddAfter(name, wait)
		return nil
	}
	found, bundle := p.configMaps.Get(name), p.Source.Current()
	switch planConfigMap(namespace.Status.Phase == corev1.NamespaceActive, found, bundle) {
	case none:
		p.pacing.forget(name) // the last write was not undone
	case create:
		return p.create(ctx, name, bundle)
	case update:
		if found.Has && found.Hash != bundle.hash {
			if wait := p.Source.Turn(corev1.ResourceConfigMaps, name, p.Clock.Now()); wait > 0 {
				p.queue.AddAfter(name, wait)
				return nil
			}
		}
		return p.update(ctx, found, bundle)
	case refuse:
		p.Recorder.Warn(found.Reference(), "ImmutableRootCA", "Publish",
			"the ConfigMap is immutable and does not hold the root CA bundle as it is now: delete it, it is created again at once")
	}
	return nil
}

// create sends one request without a read. If the ConfigMap exists already, the watch brings it,
// unless it is deleted first. A namespace that is gone or terminating needs none.
func (p *Publisher) create(ctx context.Context, namespace string, bundle *Bundle) error {
	configMap := render(metav1.ObjectMeta{Namespace: namespace, Name: informers.RootCAName}, bundle)
	_, err := p.Client.CoreV1().ConfigMaps(namespace).Create(ctx, configMap, metav1.CreateOptions{FieldManager: meta.FieldManager})
	switch {
	case err == nil:
		klog.FromContext(ctx).V(2).Info("Published the root CA", "configMap", klog.KObj(configMap))
		p.pause(namespace)
		return nil
	case apierrors.IsAlreadyExists(err):
		p.pause(namespace)
		return nil
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	default:
		return fmt.Errorf("create configmap %s/%s: %w", namespace, informers.RootCAName, err)
	}
}

// update overwrites the cached version: a newer one is a conflict, and the watch brings a deletion.
func (p *Publisher) update(ctx context.Context, found *informers.RootCA, bundle *Bundle) error {
	configMap := render(found.ObjectMeta, bundle)
	_, err := p.Client.CoreV1().ConfigMaps(found.Namespace).Update(ctx, configMap, metav1.UpdateOptions{FieldManager: meta.FieldManager})
	switch {
	case err == nil:
		klog.FromContext(ctx).V(2).Info("Published the root CA again", "configMap", klog.KObj(configMap))
		p.pause(found.Namespace)
		return nil
	case apierrors.IsNotFound(err):
		return nil
	default:
		return fmt.Errorf("update configmap %s/%s: %w", found.Namespace, found.Name, err)
	}
}

// pause delays the next write to the namespace and queues it for then: a ConfigMap that is created
// and deleted while the watch is interrupted causes no event.
func (p *Publisher) pause(namespace string) {
	p.queue.AddAfter(namespace, p.pacing.wrote(namespace, p.Clock.Now()))
}
