// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/meta"
)

// tokenControllers are the field managers whose entries in a ServiceAccount's
// secrets list are token references: ours and kube-controller-manager's.
var tokenControllers = []string{meta.FieldManager, meta.UpstreamFieldManager}

// KeyRingName is the ConfigMap in kube-system in which the leader publishes what its key
// ring is, without any key.
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

// trimAccount keeps of a ServiceAccount's managedFields only what proves that a
// token controller wrote a reference.
func trimAccount(obj any) (any, error) {
	if account, ok := obj.(*corev1.ServiceAccount); ok {
		account.ManagedFields = slices.DeleteFunc(account.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
			return !writesReferences(entry)
		})
		if len(account.ManagedFields) == 0 {
			account.ManagedFields = nil
		}
	}
	return obj, nil
}

func writesReferences(entry metav1.ManagedFieldsEntry) bool {
	return slices.Contains(tokenControllers, entry.Manager) && references(entry) != nil
}

// references are the fields that an entry owns below the secrets list, by member.
func references(entry metav1.ManagedFieldsEntry) map[string]json.RawMessage {
	var owned struct {
		Secrets map[string]json.RawMessage `json:"f:secrets"`
	}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
		return nil
	}
	return owned.Secrets
}

// ReferenceWrittenByTokenController tells whether account's managedFields attribute
// the entry of its secrets list that names secret to a token controller. In
// fieldsV1 that entry is the member `k:{"name":"..."}` of f:secrets
// (sigs.k8s.io/structured-merge-diff, fieldpath serialization).
func ReferenceWrittenByTokenController(account *corev1.ServiceAccount, secret string) bool {
	// Object names need no escaping: they are DNS-1123 subdomains.
	member := `k:{"name":"` + secret + `"}`
	return slices.ContainsFunc(account.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		_, written := references(entry)[member]
		return written && slices.Contains(tokenControllers, entry.Manager)
	})
}

// References tells whether account's secrets list names secret.
func References(account *corev1.ServiceAccount, secret string) bool {
	return slices.ContainsFunc(account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == secret })
}
