// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/controllers/informers"
)

// action is what a namespace needs.
type action int

const (
	none action = iota
	create
	update
	refuse // it is wrong and cannot be written
)

// planConfigMap decides for one namespace. A ConfigMap is created only where the
// namespace is Active, and repaired for as long as it exists: the Pods of a terminating
// namespace still verify kube-apiserver with it. Upstream leaves another text in the
// annotation and keys of binaryData alone.
func planConfigMap(active bool, found *informers.RootCA, bundle *Bundle) action {
	switch {
	case bundle == nil:
		return none
	case found == nil && active:
		return create
	case found == nil, found.DeletionTimestamp != nil, !needsUpdate(found, bundle):
		return none
	case found.Immutable:
		return refuse
	}
	return update
}

// needsUpdate leaves a ConfigMap that has a bundle alone as a whole while ours is
// provisional, because an update replaces the bundle too.
func needsUpdate(found *informers.RootCA, bundle *Bundle) bool {
	if bundle.NeedsUpdate(found.Has, found.Hash) {
		return true
	}
	return !bundle.provisional && (found.Extra || !found.Described)
}

// render is the ConfigMap as it should be, with everything that others put into the
// metadata.
func render(meta metav1.ObjectMeta, bundle *Bundle) *corev1.ConfigMap {
	if meta.Annotations = maps.Clone(meta.Annotations); meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[informers.DescriptionAnnotation] = informers.RootCADescription
	return &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{informers.RootCAKey: string(bundle.PEM())}}
}
