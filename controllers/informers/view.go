// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package informers is the process's picture of the cluster: which objects it watches
// and what of them it keeps.
//
// Every part of the process asks one View for the listers it needs before Start;
// there is one watch per resource and selector however many parts ask, and only
// what was asked for is watched. Transforms drop what nobody reads before an
// object is cached. Of Secrets only the token type is ever watched, and a token's
// bytes never enter the cache: what remains of them is a key ID and a finding.
//
// Cached objects are shared. Nobody may change one.
package informers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/reconcile"
)

// View hands out shared informers. It is not safe for concurrent use until Start;
// the listers and informers it has handed out are, always.
type View struct {
	all          informers.SharedInformerFactory
	tokenSecrets informers.SharedInformerFactory
	rootCAs      informers.SharedInformerFactory
	keyRing      informers.SharedInformerFactory
	watched      []watched
}

type watched struct {
	name     string
	informer cache.SharedIndexInformer
}

// New prepares a view through client. Every resync, handlers see each object
// again without a request to the apiserver.
func New(client kubernetes.Interface, resync time.Duration) *View {
	only := func(field, value string, more ...informers.SharedInformerOption) informers.SharedInformerFactory {
		selector := fields.OneTermEqualSelector(field, value).String()
		return informers.NewSharedInformerFactoryWithOptions(client, resync, append(more,
			informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.FieldSelector = selector }))...)
	}
	return &View{
		all:          informers.NewSharedInformerFactoryWithOptions(client, resync),
		tokenSecrets: only("type", string(corev1.SecretTypeServiceAccountToken)),
		rootCAs:      only(metav1.ObjectNameField, RootCAName),
		keyRing:      only(metav1.ObjectNameField, KeyRingName, informers.WithNamespace(metav1.NamespaceSystem)),
	}
}

// Namespaces is the lister of all namespaces and its informer.
func (v *View) Namespaces() (corev1listers.NamespaceLister, cache.SharedIndexInformer) {
	informer := v.all.Core().V1().Namespaces()
	v.watch("namespaces", informer.Informer(), trimNamespace, nil)
	return informer.Lister(), informer.Informer()
}

// Accounts is the lister of all ServiceAccounts and its informer.
func (v *View) Accounts() (corev1listers.ServiceAccountLister, cache.SharedIndexInformer) {
	informer := v.all.Core().V1().ServiceAccounts()
	v.watch("serviceaccounts", informer.Informer(), trimAccount, nil)
	return informer.Lister(), informer.Informer()
}

// TokenSecrets is the lister of all Secrets of type
// kubernetes.io/service-account-token and its informer, whose handlers receive
// *tokensecrets.TokenSecret.
func (v *View) TokenSecrets() (tokensecrets.Lister, cache.SharedIndexInformer) {
	informer := v.tokenSecrets.Core().V1().Secrets().Informer()
	v.watch("secrets (type "+string(corev1.SecretTypeServiceAccountToken)+")", informer, observeTokenSecret,
		tokensecrets.Indexers())
	return tokensecrets.ListerOf(informer.GetIndexer()), informer
}

// RootCAs is the lister of all ConfigMaps kube-root-ca.crt and its informer, whose
// handlers receive *RootCA.
func (v *View) RootCAs() (RootCALister, cache.SharedIndexInformer) {
	informer := v.rootCAs.Core().V1().ConfigMaps().Informer()
	v.watch("configmaps (name "+RootCAName+")", informer, observeRootCA, nil)
	return RootCALister{informer.GetIndexer()}, informer
}

// KeyRing is what the leader has published of its key ring, nil if it has not, and the
// informer of that one ConfigMap.
func (v *View) KeyRing() (func() *corev1.ConfigMap, cache.SharedIndexInformer) {
	informer := v.keyRing.Core().V1().ConfigMaps()
	v.watch("configmaps (name "+KeyRingName+")", informer.Informer(), keepObject, nil)
	lister := informer.Lister().ConfigMaps(metav1.NamespaceSystem)
	return func() *corev1.ConfigMap {
		published, err := lister.Get(KeyRingName)
		if err != nil {
			return nil // a lister's only error is that there is none
		}
		return published
	}, informer.Informer()
}

// watch sets an informer up when it is asked for the first time.
func (v *View) watch(name string, informer cache.SharedIndexInformer, transform cache.TransformFunc, indexers cache.Indexers) {
	if slices.ContainsFunc(v.watched, func(w watched) bool { return w.name == name }) {
		return
	}
	v.watched = append(v.watched, watched{name, informer})
	// Both can only fail on an informer that runs already, which a View's do not
	// before Start; asking later is a programming error.
	if err := informer.SetTransform(transform); err != nil {
		panic("view: " + name + " asked for after Start: " + err.Error())
	}
	if err := informer.AddIndexers(indexers); err != nil {
		panic("view: index " + name + ": " + err.Error())
	}
}

// Start begins to watch what has been asked for and returns at once.
func (v *View) Start(ctx context.Context) {
	v.all.StartWithContext(ctx)
	v.tokenSecrets.StartWithContext(ctx)
	v.rootCAs.StartWithContext(ctx)
	v.keyRing.StartWithContext(ctx)
}

// Missing names what has not been listed completely yet. It is empty once the
// view can be relied on.
func (v *View) Missing() []string {
	var missing []string
	for _, w := range v.watched {
		if !w.informer.HasSynced() {
			missing = append(missing, w.name)
		}
	}
	return missing
}

// Await blocks until nothing is missing and tells whether that came before ctx ended.
func (v *View) Await(ctx context.Context) bool {
	lists := make([]cache.DoneChecker, 0, len(v.watched))
	for _, w := range v.watched {
		lists = append(lists, w.informer.HasSyncedChecker())
	}
	return cache.WaitFor(ctx, "the first lists", lists...)
}

// Stop waits until every watch has ended; the context given to Start must have.
func (v *View) Stop() {
	reconcile.AwaitWatches(func() {
		v.all.Shutdown()
		v.tokenSecrets.Shutdown()
		v.rootCAs.Shutdown()
		v.keyRing.Shutdown()
	})
}
