// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// sorted are the values in the order of their keys, so that equal snapshots give equal
// judgements.
func sorted[T any](objects map[types.NamespacedName]T) []T {
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

// owner is the UID that a token Secret says it belongs to.
func owner(secret *corev1.Secret) types.UID {
	return types.UID(secret.Annotations[corev1.ServiceAccountUIDKey])
}

// writtenByTokenControllers reports whether managedFields name token controllers, and nobody else,
// as those who wrote the entry of the list.
func writtenByTokenControllers(account *corev1.ServiceAccount, secret string) bool {
	written := false
	for _, entry := range account.ManagedFields {
		if entry.FieldsV1 == nil || !strings.Contains(string(entry.FieldsV1.GetRawBytes()), `k:{\"name\":\"`+secret+`\"}`) {
			continue
		}
		if entry.Manager != productManager && entry.Manager != "kube-controller-manager" {
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

// claimedUID reads a token without verifying it; "" if it is none.
func claimedUID(token string) types.UID {
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

// within is the part of it in namespaces whose names begin with prefix.
func (s Snapshot) within(prefix string) Snapshot {
	outside := func(namespace string) bool { return !strings.HasPrefix(namespace, prefix) }
	s.Namespaces = slices.DeleteFunc(s.Namespaces, func(n corev1.Namespace) bool { return outside(n.Name) })
	maps.DeleteFunc(s.Accounts, func(key types.NamespacedName, _ *corev1.ServiceAccount) bool { return outside(key.Namespace) })
	maps.DeleteFunc(s.Secrets, func(key types.NamespacedName, _ *corev1.Secret) bool { return outside(key.Namespace) })
	maps.DeleteFunc(s.ConfigMaps, func(key types.NamespacedName, _ *corev1.ConfigMap) bool { return outside(key.Namespace) })
	return s
}

// snapshot lists all there is, from kube-apiserver's newest state.
func (w *World) snapshot(ctx context.Context) (Snapshot, error) {
	core := w.client.client.CoreV1()
	all := metav1.ListOptions{}
	namespaces, err := core.Namespaces().List(ctx, all)
	if err != nil {
		return Snapshot{}, fmt.Errorf("list namespaces: %w", err)
	}
	accounts, err := core.ServiceAccounts("").List(ctx, all)
	if err != nil {
		return Snapshot{}, fmt.Errorf("list serviceaccounts: %w", err)
	}
	secrets, err := core.Secrets("").List(ctx, all)
	if err != nil {
		return Snapshot{}, fmt.Errorf("list secrets: %w", err)
	}
	configMaps, err := core.ConfigMaps("").List(ctx, all)
	if err != nil {
		return Snapshot{}, fmt.Errorf("list configmaps: %w", err)
	}
	now := Snapshot{
		Namespaces: namespaces.Items,
		Accounts:   map[types.NamespacedName]*corev1.ServiceAccount{},
		Secrets:    map[types.NamespacedName]*corev1.Secret{},
		ConfigMaps: map[types.NamespacedName]*corev1.ConfigMap{},
	}
	for i := range accounts.Items {
		now.Accounts[key(accounts.Items[i].Namespace, accounts.Items[i].Name)] = &accounts.Items[i]
	}
	for i := range secrets.Items {
		now.Secrets[key(secrets.Items[i].Namespace, secrets.Items[i].Name)] = &secrets.Items[i]
	}
	for i := range configMaps.Items {
		now.ConfigMaps[key(configMaps.Items[i].Namespace, configMaps.Items[i].Name)] = &configMaps.Items[i]
	}
	return now, nil
}
