// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/controllers/informers"
)

// action is the next step for a namespace.
type action int

const (
	none action = iota
	create
	update
	refuse // it needs an update but is immutable
)

// planConfigMap decides for one namespace. A ConfigMap is created only where the
// namespace is Active, and repaired as long as it exists: the Pods of a terminating namespace
// still verify kube-apiserver with it. Unlike here, upstream repairs neither the annotation nor
// binaryData.
func planConfigMap(active bool, found *informers.RootCA, bundle *Bundle) action {
	switch {
	case bundle == nil:
		return none
	case found == nil && active:
		return create
	case found == nil, found.DeletionTimestamp != nil:
		return none
	case !bundle.NeedsUpdate(found.Has, found.Hash) && !found.Extra && found.Described:
		return none
	case found.Immutable:
		return refuse
	}
	return update
}

// render returns the wanted ConfigMap, which keeps the metadata of other writers.
func render(meta metav1.ObjectMeta, bundle *Bundle) *corev1.ConfigMap {
	if meta.Annotations = maps.Clone(meta.Annotations); meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[informers.DescriptionAnnotation] = informers.RootCADescription
	return &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{informers.RootCAKey: string(bundle.PEM())}}
}
