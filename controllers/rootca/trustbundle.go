// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
)

// Upstream's names (pkg/controller/certificates/clustertrustbundlepublisher/publisher.go).
const (
	// ServingSigner is the signer whose bundle verifies kube-apiserver.
	ServingSigner = "kubernetes.io/kube-apiserver-serving"

	trustBundlePrefix = "kubernetes.io:kube-apiserver-serving:"
	trustBundleQueue  = "ca_cert_publisher_cluster_trust_bundles"

	trustBundles corev1.ResourceName = "clustertrustbundles"
)

// retryInterval is how often kube-apiserver is asked whether it serves the API, and how often a bundle is
// created that another client has deleted.
const retryInterval = time.Minute

// SelectServingSigner makes a list select the bundles of ServingSigner.
func SelectServingSigner(o *metav1.ListOptions) { o.FieldSelector = "spec.signerName=" + ServingSigner }

// TrustBundlePublisher keeps the ClusterTrustBundle of ServingSigner. Its name ends in a hash of the content, so
// a changed bundle is another object. The successor exists for a moment before the predecessor is deleted:
// there is always one, and there are never more than two. Bundles that neither this program nor
// kube-controller-manager has published are never deleted.
type TrustBundlePublisher struct {
	PublisherConfig

	queue   *reconcile.Runner[string]
	problem atomic.Pointer[string]
	// lost is set when another client deletes the bundle. If that happens again within retryInterval, a second
	// publisher runs, and recreate delays the next creation.
	lost     atomic.Bool
	recreate *rate.Limiter

	// Only the one worker of the queue uses these.
	bundles cache.Store
	created time.Time // when a bundle was created last
}

// NewTrustBundlePublisher builds a TrustBundlePublisher that does not run yet. The Informers are not used.
func NewTrustBundlePublisher(config PublisherConfig) *TrustBundlePublisher {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	p := &TrustBundlePublisher{PublisherConfig: config, recreate: rate.NewLimiter(rate.Every(retryInterval), 1)}
	p.queue = reconcile.New(reconcile.Config[string]{
		Name: trustBundleQueue, Workers: 1, Metrics: config.Loops, Clock: config.Clock, Sync: p.sync,
	})
	config.Source.Register(trustBundles, Writer{Changed: func() { p.queue.AddIfRunning(ServingSigner) }})
	return p
}

// Run works until ctx ends. It begins once kube-apiserver serves the API, which it does from Kubernetes 1.37 on. It
// may be called again once it has returned.
func (p *TrustBundlePublisher) Run(ctx context.Context) error {
	defer p.problem.Store(nil)
	if wait.PollUntilContextCancel(ctx, retryInterval, true, p.served) != nil {
		return nil
	}
	informer := certificatesinformers.NewFilteredClusterTrustBundleInformer(p.Client, 0, cache.Indexers{}, SelectServingSigner)
	p.bundles = informer.GetStore()
	return p.queue.RunWatching(ctx, ServingSigner, reconcile.Watch{Informer: informer, Observe: p.observe})
}

func (p *TrustBundlePublisher) served(ctx context.Context) (bool, error) {
	_, err := p.Client.CertificatesV1().ClusterTrustBundles().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		klog.FromContext(ctx).V(4).Info("ClusterTrustBundles cannot be listed, asking again later", "err", err)
	}
	return err == nil, nil
}

// observe notes that another client has deleted the bundle: this program deletes only others.
func (p *TrustBundlePublisher) observe(obj any, deleted bool) {
	bundle, _ := p.Source.Current()
	if one, ok := obj.(*certificatesv1.ClusterTrustBundle); ok && deleted && bundle != nil && one.Name == bundle.trustBundleName() {
		p.Metrics.Replaced(trustBundles)
		p.lost.Store(true)
	}
}

// Check returns an error while a second publisher keeps this one from publishing.
func (p *TrustBundlePublisher) Check() (detail string, err error) {
	if problem := p.problem.Load(); problem != nil {
		return "", errors.New(*problem)
	}
	return "", nil
}

func (p *TrustBundlePublisher) sync(ctx context.Context, _ string) error {
	bundle, _ := p.Source.Current()
	if bundle == nil {
		return nil // once it is known, the Source queues the key
	}
	err := p.publish(ctx, bundle)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		p.Recorder.Warn(trustBundleReference(bundle.trustBundleName()), "TrustBundleRefused", err.Error())
	}
	return err
}

func (p *TrustBundlePublisher) publish(ctx context.Context, bundle *Bundle) error {
	now := p.Clock.Now()
	found, previous, left := p.find(bundle.trustBundleName())
	switch {
	case found == nil && p.lost.Load() && !p.recreate.AllowN(now, 1):
		p.contested(bundle.trustBundleName(), left)
		p.queue.AddAfter(ServingSigner, retryInterval)
		return nil
	case found == nil:
		if n := len(previous) - 1; n > 0 {
			if err := p.delete(ctx, previous[:n]); err != nil {
				return err
			}
		}
		p.created = now
		p.queue.AddAfter(ServingSigner, createdCheck)
		return p.create(ctx, bundle)
	case found.Spec.TrustBundle != string(bundle.pem):
		return p.update(ctx, found, bundle)
	case now.Sub(p.created) < createdCheck:
		// A second publisher deletes the new one at once. Then the previous one must still be there.
		p.queue.AddAfter(ServingSigner, createdCheck-now.Sub(p.created))
		return nil
	}
	p.lost.Store(false)
	p.problem.Store(nil)
	return p.delete(ctx, previous)
}

// find returns the wanted bundle, the previous ones with the newest last, and a description of all that are not
// wanted.
func (p *TrustBundlePublisher) find(wanted string) (found *certificatesv1.ClusterTrustBundle,
	previous []*certificatesv1.ClusterTrustBundle, left []string,
) {
	for _, obj := range p.bundles.List() {
		one := obj.(*certificatesv1.ClusterTrustBundle)
		if one.Name == wanted {
			found = one
			continue
		}
		left = append(left, DescribeTrustBundle(one))
		if PublishedTrustBundle(one) {
			previous = append(previous, one)
			continue
		}
		p.Recorder.Warn(trustBundleReference(one.Name), "ForeignTrustBundle",
			"neither this program nor kube-controller-manager has published "+DescribeTrustBundle(one)+
				": it stays, and Pods trust it for kube-apiserver until it is deleted")
	}
	slices.SortFunc(previous, func(a, b *certificatesv1.ClusterTrustBundle) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	slices.Sort(left)
	return found, previous, left
}

func (p *TrustBundlePublisher) contested(name string, left []string) {
	problem := "another client keeps deleting the ClusterTrustBundle " + name + ", which is created again once a minute"
	if len(left) > 0 {
		problem += ", and leaves " + strings.Join(left, ", ")
	}
	problem += ": if that is kube-controller-manager, take the controller away from it with sa-controller-manager kubeadm takeover"
	p.problem.Store(&problem)
	p.Recorder.Warn(trustBundleReference(name), "SecondTrustBundlePublisher", problem)
}

func (p *TrustBundlePublisher) create(ctx context.Context, bundle *Bundle) error {
	object := &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: bundle.trustBundleName()},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: ServingSigner, TrustBundle: string(bundle.pem)},
	}
	return p.write(ctx, "create", object.Name, func() error {
		_, err := p.Client.CertificatesV1().ClusterTrustBundles().Create(ctx, object, metav1.CreateOptions{FieldManager: meta.FieldManager})
		if apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("%w: %w", reconcile.ErrStaleCache, err)
		}
		return err
	})
}

func (p *TrustBundlePublisher) update(ctx context.Context, found *certificatesv1.ClusterTrustBundle, bundle *Bundle) error {
	object := found.DeepCopy()
	object.ManagedFields, object.Spec.TrustBundle = nil, string(bundle.pem)
	return p.write(ctx, "update", object.Name, func() error {
		_, err := p.Client.CertificatesV1().ClusterTrustBundles().Update(ctx, object, metav1.UpdateOptions{FieldManager: meta.FieldManager})
		return err
	})
}

func (p *TrustBundlePublisher) delete(ctx context.Context, previous []*certificatesv1.ClusterTrustBundle) error {
	for _, one := range previous {
		err := p.write(ctx, "delete", one.Name, func() error {
			return p.Client.CertificatesV1().ClusterTrustBundles().Delete(ctx, one.Name, metav1.DeleteOptions{Preconditions: meta.Preconditions(one)})
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// write waits for a turn in the rate of all objects with a root CA.
func (p *TrustBundlePublisher) write(ctx context.Context, verb, name string, request func() error) error {
	err := p.Source.limiter.Wait(ctx)
	if err == nil {
		err = request()
	}
	if err != nil {
		return fmt.Errorf("%s clustertrustbundle %s: %w", verb, name, err)
	}
	klog.FromContext(ctx).Info("Changed the ClusterTrustBundle of kube-apiserver", "verb", verb, "clusterTrustBundle", name)
	return nil
}

func (b *Bundle) trustBundleName() string { return trustBundleName(b.hash) }

func trustBundleName(hash [sha256.Size]byte) string {
	return fmt.Sprintf("%s%x", trustBundlePrefix, hash[:12])
}

// PublishedTrustBundle reports whether this program or kube-controller-manager has published a bundle: its name is
// that of its content, and by its managedFields one of the two has written it.
func PublishedTrustBundle(one *certificatesv1.ClusterTrustBundle) bool {
	return one.Name == trustBundleName(sha256.Sum256([]byte(one.Spec.TrustBundle))) &&
		slices.ContainsFunc(trustBundleWriters(one), func(manager string) bool {
			return manager == meta.FieldManager || manager == meta.UpstreamFieldManager
		})
}

// DescribeTrustBundle returns the name of a bundle and who has written it.
func DescribeTrustBundle(one *certificatesv1.ClusterTrustBundle) string {
	if writers := trustBundleWriters(one); len(writers) > 0 {
		return one.Name + " of " + strings.Join(writers, " and ")
	}
	return one.Name
}

func trustBundleWriters(one *certificatesv1.ClusterTrustBundle) (managers []string) {
	for _, entry := range one.ManagedFields {
		if entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:trustBundle"`)) {
			managers = append(managers, entry.Manager)
		}
	}
	return managers
}

func trustBundleReference(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "certificates.k8s.io/v1", Kind: "ClusterTrustBundle", Name: name}
}
