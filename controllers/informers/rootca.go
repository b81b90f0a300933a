// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"crypto/sha256"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// What clients rely on (pkg/controller/certificates/rootcacertpublisher/publisher.go).
const (
	RootCAName            = "kube-root-ca.crt"
	RootCAKey             = "ca.crt"
	DescriptionAnnotation = "kubernetes.io/description"
	RootCADescription     = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as " +
		"the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)

// RootCA is the cached part of a ConfigMap kube-root-ca.crt. Its metadata lacks only managedFields
// and the description, because an update sends it back.
type RootCA struct {
	metav1.ObjectMeta

	// Has reports whether there is a bundle, and Hash is its SHA-256.
	Has  bool
	Hash [sha256.Size]byte
	// Extra reports whether there are further keys.
	Extra bool
	// Described reports whether the annotation has upstream's text.
	Described bool
	Immutable bool
}

// Reference returns a reference to the ConfigMap for an Event.
func (r *RootCA) Reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: r.Namespace, Name: r.Name, UID: r.UID}
}

// observeRootCA is the informer's transform. It must accept its own result, because a resync calls
// it again.
func observeRootCA(obj any) (any, error) {
	if configMap, ok := obj.(*corev1.ConfigMap); ok {
		return ObserveRootCA(configMap), nil
	}
	return obj, nil
}

// ObserveRootCA returns the part of a ConfigMap that is cached.
func ObserveRootCA(configMap *corev1.ConfigMap) *RootCA {
	observed := &RootCA{
		ObjectMeta: configMap.ObjectMeta,
		Described:  configMap.Annotations[DescriptionAnnotation] == RootCADescription,
		Immutable:  configMap.Immutable != nil && *configMap.Immutable,
	}
	observed.ManagedFields = nil
	if observed.Annotations = maps.Clone(configMap.Annotations); observed.Described {
		delete(observed.Annotations, DescriptionAnnotation)
	}
	if len(observed.Annotations) == 0 {
		observed.Annotations = nil // an empty map takes as much memory as the rest
	}
	bundle, has := configMap.Data[RootCAKey]
	if observed.Has = bundle != ""; observed.Has {
		observed.Hash = sha256.Sum256([]byte(bundle))
	}
	keys := len(configMap.Data) + len(configMap.BinaryData)
	observed.Extra = keys > 1 || keys == 1 && !has
	return observed
}

// RootCALister reads the cached ConfigMaps kube-root-ca.crt.
type RootCALister struct {
	indexer cache.Indexer
}

// Get returns the cached ConfigMap of a namespace, nil if there is none.
func (l RootCALister) Get(namespace string) *RootCA {
	obj, exists, err := l.indexer.GetByKey(cache.NewObjectName(namespace, RootCAName).String())
	if err != nil || !exists {
		return nil
	}
	return obj.(*RootCA)
}
