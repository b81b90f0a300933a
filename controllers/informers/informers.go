// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package informers decides which objects the process watches and what it caches of them.
//
// Every part of the process asks a View of one Informers value for the listers that it needs, before Start. There is
// one watch per resource and selector, however many parts ask, and none that no part has asked for. A part
// starts once the watches of its own View have listed what there is, so it never acts on an empty cache, and never waits
// for what others need. Transforms drop unused fields before an object is cached. Of Secrets only the token
// type is watched, and a token's bytes never enter the cache: what remains of them is a key ID and a
// finding. Who needs more of one named object watches that by itself (reconcile.Watch).
//
// Cached objects are shared and must not be changed.
package informers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/reconcile"
)

// Informers returns shared informers. Those of token Secrets and root CAs lack the default index of
// namespaces, which nothing reads. It is not safe for concurrent use before Start; the listers
// and informers that it has returned are.
type Informers struct {
	// OnlyIdentity keeps of an account what shows that it exists, and is the one of a token. A tenant writes the rest.
	OnlyIdentity bool

	all     informers.SharedInformerFactory
	watched []watched
	whole   *Informers // nil if this is no View
}

var onlyTokens = fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)).String()

type watched struct {
	name     string
	informer cache.SharedIndexInformer
}

// Names of watches, as package watchhealth has them.
const (
	Namespaces = "v1/namespaces"
	Accounts   = "v1/serviceaccounts"
)

// New returns Informers that use client. At each resync, handlers get every object again without
// a request to kube-apiserver.
func New(client kubernetes.Interface, resync time.Duration) *Informers {
	return &Informers{all: informers.NewSharedInformerFactory(client, resync)}
}

// View returns the same Informers for one part: Missing and Await are about those that it asks this View for.
func (i *Informers) View() *Informers {
	return &Informers{OnlyIdentity: i.OnlyIdentity, all: i.all, whole: i}
}

// Namespaces returns the lister of all namespaces and its informer.
func (i *Informers) Namespaces() (corev1listers.NamespaceLister, cache.SharedIndexInformer) {
	informer := i.all.Core().V1().Namespaces()
	i.watch(Namespaces, informer.Informer(), trimNamespace)
	return informer.Lister(), informer.Informer()
}

// Accounts returns the lister of all ServiceAccounts and its informer.
func (i *Informers) Accounts() (corev1listers.ServiceAccountLister, cache.SharedIndexInformer) {
	informer := i.all.Core().V1().ServiceAccounts()
	transform := trimAccount
	if i.OnlyIdentity {
		transform = identityOf
	}
	i.watch(Accounts, informer.Informer(), transform)
	return informer.Lister(), informer.Informer()
}

// TokenSecrets returns the lister of all Secrets of type
// kubernetes.io/service-account-token and its informer, whose handlers receive
// *tokensecrets.TokenSecret.
func (i *Informers) TokenSecrets() (tokensecrets.Lister, cache.SharedIndexInformer) {
	informer := i.all.InformerFor(&corev1.Secret{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coreinformers.NewFilteredSecretInformer(client, metav1.NamespaceAll, resync, tokensecrets.Indexers(),
			func(options *metav1.ListOptions) { options.FieldSelector = onlyTokens })
	})
	i.watch("v1/secrets ("+onlyTokens+")", informer, observeTokenSecret)
	return tokensecrets.ListerOf(informer.GetIndexer()), informer
}

// RootCAs returns the lister of all ConfigMaps kube-root-ca.crt and its informer, whose
// handlers receive *RootCA.
func (i *Informers) RootCAs() (RootCALister, cache.SharedIndexInformer) {
	informer := i.all.InformerFor(&corev1.ConfigMap{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coreinformers.NewFilteredConfigMapInformer(client, metav1.NamespaceAll, resync, cache.Indexers{},
			reconcile.OnlyNamed(RootCAName))
	})
	i.watch("v1/configmaps (metadata.name="+RootCAName+")", informer, observeRootCA)
	return RootCALister{informer.GetIndexer()}, informer
}

// watch sets up an informer that is asked for the first time.
func (i *Informers) watch(name string, informer cache.SharedIndexInformer, transform cache.TransformFunc) {
	if slices.ContainsFunc(i.watched, func(w watched) bool { return w.name == name }) {
		return
	}
	i.watched = append(i.watched, watched{name, informer})
	if i.whole != nil {
		i.whole.watch(name, informer, transform)
		return
	}
	// It fails only on an informer that runs already. To ask for one after Start is a
	// programming error.
	if err := informer.SetTransform(transform); err != nil {
		panic("informers: " + name + " asked for after Start: " + err.Error())
	}
}

// Start starts the watches that have been asked for and returns immediately.
func (i *Informers) Start(ctx context.Context) {
	i.all.StartWithContext(ctx)
}

// Missing returns the names of the watches whose first list is not complete. It is empty once all
// caches are synced.
func (i *Informers) Missing() []string {
	var missing []string
	for _, w := range i.watched {
		if !w.informer.HasSynced() {
			missing = append(missing, w.name)
		}
	}
	return missing
}

// Await blocks until all caches, or those of the given names alone, are synced, and reports whether they were before
// ctx ended. Nil has none.
func (i *Informers) Await(ctx context.Context, names ...string) bool {
	var lists []cache.DoneChecker
	if i != nil {
		for _, w := range i.watched {
			if len(names) == 0 || slices.Contains(names, w.name) {
				lists = append(lists, w.informer.HasSyncedChecker())
			}
		}
	}
	return cache.WaitFor(ctx, "", lists...)
}

// Stop waits until every watch has ended; the context given to Start must have.
func (i *Informers) Stop() {
	reconcile.AwaitWatches(i.all.Shutdown)
}

// trimNamespace keeps a Namespace's name and phase.
func trimNamespace(obj any) (any, error) {
	if namespace, ok := obj.(*corev1.Namespace); ok {
		namespace.ManagedFields, namespace.Annotations, namespace.Labels = nil, nil, nil
	}
	return obj, nil
}

// trimAccount keeps only those managedFields of a ServiceAccount that prove that token controllers
// alone wrote a reference.
func trimAccount(obj any) (any, error) {
	if account, ok := obj.(*corev1.ServiceAccount); ok {
		account.ManagedFields = tokensecrets.KeepWrittenReferences(account.ManagedFields)
	}
	return obj, nil
}

func identityOf(obj any) (any, error) {
	if account, ok := obj.(*corev1.ServiceAccount); ok {
		of := &account.ObjectMeta
		*account = corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: of.Name, UID: of.UID, ResourceVersion: of.ResourceVersion,
			DeletionTimestamp: of.DeletionTimestamp,
		}}
	}
	return obj, nil
}

// observeTokenSecret keeps no bytes of a token. Like all transforms here it must accept its own
// result, because a resync calls it again.
func observeTokenSecret(obj any) (any, error) {
	if secret, ok := obj.(*corev1.Secret); ok {
		return tokensecrets.Observe(secret), nil
	}
	return obj, nil
}
