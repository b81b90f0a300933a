// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

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

type trustBundle = certificatesv1.ClusterTrustBundle

// retryInterval is how often kube-apiserver is asked whether it serves the API.
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

	// Only the one worker of the queue uses these.
	bundles cache.Store
	created time.Time // when a bundle was created last
}

// NewTrustBundlePublisher builds a TrustBundlePublisher that does not run yet. Informers and Clock are not used.
func NewTrustBundlePublisher(config PublisherConfig) *TrustBundlePublisher {
	p := &TrustBundlePublisher{PublisherConfig: config}
	p.queue = reconcile.New(reconcile.Config[string]{Name: trustBundleQueue, Workers: 1, Metrics: config.Loops, Sync: p.sync})
	config.Source.Changed.Subscribe(func(*Bundle) { p.queue.AddIfRunning(ServingSigner) })
	return p
}

// Run works until ctx ends. It begins once kube-apiserver serves the API, which it does from Kubernetes 1.37 on. It
// may be called again once it has returned.
func (p *TrustBundlePublisher) Run(ctx context.Context) error {
	defer p.problem.Store(nil)
	served := func(ctx context.Context) (bool, error) {
		_, err := p.Client.CertificatesV1().ClusterTrustBundles().List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, nil
	}
	if wait.PollUntilContextCancel(ctx, retryInterval, true, served) != nil {
		return nil
	}
	informer := certificatesinformers.NewFilteredClusterTrustBundleInformer(p.Client, 0, cache.Indexers{}, SelectServingSigner)
	p.bundles = informer.GetStore()
	return p.queue.RunWatching(ctx, ServingSigner, reconcile.Watch{Informer: informer, Observe: p.observe})
}

// observe counts that another client has deleted the bundle: this program deletes only others.
func (p *TrustBundlePublisher) observe(obj any, deleted bool) {
	bundle, _ := p.Source.Current()
	if one, ok := obj.(*trustBundle); ok && deleted && bundle != nil && one.Name == trustBundleName(bundle.hash) {
		p.Metrics.Replaced(trustBundles)
	}
}

// Check returns an error while a second publisher deletes the bundle.
func (p *TrustBundlePublisher) Check() (detail string, err error) {
	if problem := p.problem.Load(); problem != nil {
		err = errors.New(*problem)
	}
	return "", err
}

// sync hands the write over to the rollout of all objects with a root CA.
func (p *TrustBundlePublisher) sync(ctx context.Context, _ string) error {
	bundle, _ := p.Source.Current()
	if bundle == nil {
		return nil // once it is known, the Source queues the key
	}
	name := trustBundleName(bundle.hash)
	err := p.Source.limiter.Wait(ctx)
	if err == nil {
		err = p.publish(ctx, name, bundle)
	}
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%w: %w", reconcile.ErrStaleCache, err)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		p.Recorder.Warn(trustBundleReference(name), "TrustBundleRefused", err.Error())
	}
	return fmt.Errorf("publish the ClusterTrustBundle %s: %w", name, err)
}

func (p *TrustBundlePublisher) publish(ctx context.Context, name string, bundle *Bundle) error {
	api, now := p.Client.CertificatesV1().ClusterTrustBundles(), time.Now()
	object := cache.NewObjectName("", name)
	found, previous := p.find(name)
	switch {
	case found == nil && p.Source.Delay(trustBundles, object) > 0:
		p.queue.AddAfter(ServingSigner, p.Source.Delay(trustBundles, object))
		return nil
	case found == nil:
		if err := p.delete(ctx, previous[:max(len(previous)-1, 0)]); err != nil {
			return err
		}
		p.created = now
		p.queue.AddAfter(ServingSigner, createdCheck)
		klog.FromContext(ctx).Info("Publishing the root CA in another ClusterTrustBundle", "clusterTrustBundle", name)
		_, err := api.Create(ctx, &trustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: ServingSigner, TrustBundle: string(bundle.pem)},
		}, metav1.CreateOptions{FieldManager: meta.FieldManager})
		if err == nil && p.Source.Wrote(trustBundles, object) {
			problem := "another client keeps deleting the ClusterTrustBundle " + name + ", which is created again less and less often, " +
				"up to once a minute: if that is kube-controller-manager, take the controller away from it with " +
				"sa-controller-manager kubeadm takeover"
			p.problem.Store(&problem)
			p.Recorder.Warn(trustBundleReference(name), "SecondTrustBundlePublisher", problem)
		}
		return err
	case found.Spec.TrustBundle != string(bundle.pem):
		found = found.DeepCopy()
		found.ManagedFields, found.Spec.TrustBundle = nil, string(bundle.pem)
		_, err := api.Update(ctx, found, metav1.UpdateOptions{FieldManager: meta.FieldManager})
		return err
	case now.Sub(p.created) < createdCheck:
		// A second publisher deletes the new one immediately. Then the previous one must still be there.
		p.queue.AddAfter(ServingSigner, createdCheck-now.Sub(p.created))
		return nil
	}
	p.problem.Store(nil)
	return p.delete(ctx, previous)
}

// find returns the wanted bundle and the previous ones with the newest last, and reports all others.
func (p *TrustBundlePublisher) find(wanted string) (found *trustBundle, previous []*trustBundle) {
	for _, obj := range p.bundles.List() {
		switch one := obj.(*trustBundle); {
		case one.Name == wanted:
			found = one
		case PublishedTrustBundle(one):
			previous = append(previous, one)
		default:
			p.Recorder.Warn(trustBundleReference(one.Name), "ForeignTrustBundle",
				"neither this program nor kube-controller-manager has published "+
					DescribeTrustBundle(one)+": it stays, and Pods trust it for kube-apiserver until it is deleted")
		}
	}
	slices.SortFunc(previous, func(a, b *trustBundle) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return found, previous
}

func (p *TrustBundlePublisher) delete(ctx context.Context, previous []*trustBundle) error {
	for _, one := range previous {
		klog.FromContext(ctx).Info("Deleting a previous ClusterTrustBundle", "clusterTrustBundle", one.Name)
		err := p.Client.CertificatesV1().ClusterTrustBundles().Delete(ctx, one.Name,
			metav1.DeleteOptions{Preconditions: meta.Preconditions(one)})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func trustBundleName(hash [sha256.Size]byte) string {
	return trustBundlePrefix + hex.EncodeToString(hash[:12])
}

// PublishedTrustBundle reports whether this program or kube-controller-manager has published a bundle: its name is
// that of its content, and by its managedFields one of the two has written it.
func PublishedTrustBundle(one *trustBundle) bool {
	return one.Name == trustBundleName(sha256.Sum256([]byte(one.Spec.TrustBundle))) &&
		slices.ContainsFunc(trustBundleWriters(one), func(manager string) bool {
			return manager == meta.FieldManager || manager == meta.UpstreamFieldManager
		})
}

// DescribeTrustBundle returns the name of a bundle and who has written it.
func DescribeTrustBundle(one *trustBundle) string {
	return one.Name + " of " + cmp.Or(strings.Join(trustBundleWriters(one), " and "), "an unknown writer")
}

func trustBundleWriters(one *trustBundle) (managers []string) {
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
