// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/faults/workload"
)

// Key is the name of an object as the maps of a Snapshot have it.
func Key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// Sorted are the values in the order of their keys, so that equal snapshots give equal
// judgements.
func Sorted[T any](objects map[types.NamespacedName]T) []T {
	keys := slices.SortedFunc(maps.Keys(objects), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	values := make([]T, 0, len(keys))
	for _, key := range keys {
		values = append(values, objects[key])
	}
	return values
}

func (j *judge) active(namespace string) bool {
	return slices.ContainsFunc(j.now.Namespaces, func(n corev1.Namespace) bool {
		return n.Name == namespace && n.Status.Phase == corev1.NamespaceActive
	})
}

// WrittenByTokenControllers reports whether managedFields name token controllers, and nobody else,
// as those who wrote the entry of the list.
func WrittenByTokenControllers(account *corev1.ServiceAccount, secret string) bool {
	written := false
	for _, entry := range account.ManagedFields {
		if entry.FieldsV1 == nil || !strings.Contains(string(entry.FieldsV1.GetRawBytes()), `k:{\"name\":\"`+secret+`\"}`) {
			continue
		}
		if entry.Manager != workload.ProductManager && entry.Manager != "kube-controller-manager" {
			return false
		}
		written = true
	}
	return written
}

func managersOf(object metav1.Object) []string {
	var managers []string
	for _, entry := range object.GetManagedFields() {
		managers = append(managers, entry.Manager)
	}
	return managers
}

// ClaimedUID reads a token without verifying it; "" if it is none.
func ClaimedUID(token string) types.UID {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var claims struct {
		UID types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
	}
	if !readSegment(parts[1], &claims) {
		return ""
	}
	return claims.UID
}

// readSegment reads the header or the payload of a token, and reports whether it is one.
func readSegment(encoded string, into any) bool {
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	return err == nil && json.NewDecoder(bytes.NewReader(decoded)).Decode(into) == nil
}

// InNamespaces is the part of it in namespaces whose names begin with prefix.
func (s Snapshot) InNamespaces(prefix string) Snapshot {
	outside := func(namespace string) bool { return !strings.HasPrefix(namespace, prefix) }
	s.Namespaces = slices.DeleteFunc(s.Namespaces, func(n corev1.Namespace) bool { return outside(n.Name) })
	maps.DeleteFunc(s.Accounts, func(key types.NamespacedName, _ *corev1.ServiceAccount) bool { return outside(key.Namespace) })
	maps.DeleteFunc(s.Secrets, func(key types.NamespacedName, _ *corev1.Secret) bool { return outside(key.Namespace) })
	maps.DeleteFunc(s.ConfigMaps, func(key types.NamespacedName, _ *corev1.ConfigMap) bool { return outside(key.Namespace) })
	return s
}
