// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package informers is the process's picture of the cluster: which objects it watches
// and what of them it keeps.
//
// Every part of the process asks one Informers value for the listers it needs before Start;
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

// Informers hands out shared informers. It is not safe for concurrent use until Start;
// the listers and informers it has handed out are, always.
type Informers struct {
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

// New prepares informers through client. Every resync, handlers see each object
// again without a request to the apiserver.
func New(client kubernetes.Interface, resync time.Duration) *Informers {
	only := func(field, value string, more ...informers.SharedInformerOption) informers.SharedInformerFactory {
		selector := fields.OneTermEqualSelector(field, value).String()
		return informers.NewSharedInformerFactoryWithOptions(client, resync, append(more,
			informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.FieldSelector = selector }))...)
	}
	return &Informers{
		all:          informers.NewSharedInformerFactoryWithOptions(client, resync),
		tokenSecrets: only("type", string(corev1.SecretTypeServiceAccountToken)),
		rootCAs:      only(metav1.ObjectNameField, RootCAName),
		keyRing:      only(metav1.ObjectNameField, KeyRingName, informers.WithNamespace(metav1.NamespaceSystem)),
	}
}

// Namespaces is the lister of all namespaces and its informer.
func (i *Informers) Namespaces() (corev1listers.NamespaceLister, cache.SharedIndexInformer) {
	informer := i.all.Core().V1().Namespaces()
	i.watch("namespaces", informer.Informer(), trimNamespace, nil)
	return informer.Lister(), informer.Informer()
}

// Accounts is the lister of all ServiceAccounts and its informer.
func (i *Informers) Accounts() (corev1listers.ServiceAccountLister, cache.SharedIndexInformer) {
	informer := i.all.Core().V1().ServiceAccounts()
	i.watch("serviceaccounts", informer.Informer(), trimAccount, nil)
	return informer.Lister(), informer.Informer()
}

// TokenSecrets is the lister of all Secrets of type
// kubernetes.io/service-account-token and its informer, whose handlers receive
// *tokensecrets.TokenSecret.
func (i *Informers) TokenSecrets() (tokensecrets.Lister, cache.SharedIndexInformer) {
	informer := i.tokenSecrets.Core().V1().Secrets().Informer()
	i.watch("secrets (type "+string(corev1.SecretTypeServiceAccountToken)+")", informer, observeTokenSecret,
		tokensecrets.Indexers())
	return tokensecrets.ListerOf(informer.GetIndexer()), informer
}

// RootCAs is the lister of all ConfigMaps kube-root-ca.crt and its informer, whose
// handlers receive *RootCA.
func (i *Informers) RootCAs() (RootCALister, cache.SharedIndexInformer) {
	informer := i.rootCAs.Core().V1().ConfigMaps().Informer()
	i.watch("configmaps (name "+RootCAName+")", informer, observeRootCA, nil)
	return RootCALister{informer.GetIndexer()}, informer
}

// KeyRing is the Secret in which the replicas publish what their key rings are, nil if there is
// none, and the informer of that one Secret.
func (i *Informers) KeyRing() (func() *corev1.Secret, cache.SharedIndexInformer) {
	informer := i.keyRing.Core().V1().Secrets()
	i.watch("secrets (name "+KeyRingName+")", informer.Informer(), keepObject, nil)
	lister := informer.Lister().Secrets(metav1.NamespaceSystem)
	return func() *corev1.Secret {
		published, err := lister.Get(KeyRingName)
		if err != nil {
			return nil // a lister's only error is that there is none
		}
		return published
	}, informer.Informer()
}

// watch sets an informer up when it is asked for the first time.
func (i *Informers) watch(name string, informer cache.SharedIndexInformer, transform cache.TransformFunc, indexers cache.Indexers) {
	if slices.ContainsFunc(i.watched, func(w watched) bool { return w.name == name }) {
		return
	}
	i.watched = append(i.watched, watched{name, informer})
	// Both can only fail on an informer that runs already, which these do not
	// before Start; asking later is a programming error.
	if err := informer.SetTransform(transform); err != nil {
		panic("informers: " + name + " asked for after Start: " + err.Error())
	}
	if err := informer.AddIndexers(indexers); err != nil {
		panic("informers: index " + name + ": " + err.Error())
	}
}

// Start begins to watch what has been asked for and returns at once.
func (i *Informers) Start(ctx context.Context) {
	i.all.StartWithContext(ctx)
	i.tokenSecrets.StartWithContext(ctx)
	i.rootCAs.StartWithContext(ctx)
	i.keyRing.StartWithContext(ctx)
}

// Missing names what has not been listed completely yet. It is empty once the
// informers can be relied on.
func (i *Informers) Missing() []string {
	var missing []string
	for _, w := range i.watched {
		if !w.informer.HasSynced() {
			missing = append(missing, w.name)
		}
	}
	return missing
}

// Await blocks until nothing is missing and reports whether that came before ctx ended.
func (i *Informers) Await(ctx context.Context) bool {
	lists := make([]cache.DoneChecker, 0, len(i.watched))
	for _, w := range i.watched {
		lists = append(lists, w.informer.HasSyncedChecker())
	}
	return cache.WaitFor(ctx, "the first lists", lists...)
}

// Stop waits until every watch has ended; the context given to Start must have.
func (i *Informers) Stop() {
	reconcile.AwaitWatches(func() {
		i.all.Shutdown()
		i.tokenSecrets.Shutdown()
		i.rootCAs.Shutdown()
		i.keyRing.Shutdown()
	})
}

// KeyRingName is the Secret in kube-system in which each replica publishes what its key ring
// is, without any key. It is a Secret because what it says decides who may sign: more people may
// write ConfigMaps.
const KeyRingName = "sa-controller-manager-key-ring"

// keepObject keeps everything of an object that is small and alone of its kind.
func keepObject(obj any) (any, error) { return obj, nil }

// trimNamespace keeps a Namespace's name and phase.
func trimNamespace(obj any) (any, error) {
	if namespace, ok := obj.(*corev1.Namespace); ok {
		namespace.ManagedFields, namespace.Annotations, namespace.Labels = nil, nil, nil
	}
	return obj, nil
}

// trimAccount keeps of a ServiceAccount's managedFields only what proves that token
// controllers alone wrote a reference.
func trimAccount(obj any) (any, error) {
	if account, ok := obj.(*corev1.ServiceAccount); ok {
		account.ManagedFields = tokensecrets.KeepWrittenReferences(account.ManagedFields)
	}
	return obj, nil
}

// observeTokenSecret keeps no bytes of a token. Like the others it must accept what it has
// returned before, because a resync passes through it again.
func observeTokenSecret(obj any) (any, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return obj, nil
	}
	return tokensecrets.Observe(secret), nil
}
