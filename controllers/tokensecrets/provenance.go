// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"sa-controller-manager/internal/meta"
)

// managedFields say which field manager created an object or wrote a field. Every user who may
// write the object can set them to anything. A name proves nothing: users name Secrets as token
// controllers do.

// tokenControllers are the field managers of this program and of kube-controller-manager.
var tokenControllers = []string{meta.FieldManager, meta.UpstreamFieldManager}

// createdByController reports whether a token controller owns the Secret's type, which cannot be
// changed. The owner of data.token only filled it.
func createdByController(secret *corev1.Secret) bool {
	return slices.ContainsFunc(secret.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return slices.Contains(tokenControllers, entry.Manager) && owns(entry, "f:type")
	})
}

// References reports whether the account's secrets list names the Secret.
func References(account *corev1.ServiceAccount, secret string) bool {
	return slices.ContainsFunc(account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == secret })
}

// ReferencedBy returns the names in the account's secrets list.
func ReferencedBy(account *corev1.ServiceAccount) sets.Set[string] {
	names := make(sets.Set[string], len(account.Secrets))
	for _, ref := range account.Secrets {
		names.Insert(ref.Name)
	}
	return names
}

// WrittenReferences returns the names in a ServiceAccount's secrets list that token controllers
// alone have written, as managedFields say. Invalid names are left out: kube-apiserver accepts
// them in the list, but no request can use them.
func WrittenReferences(entries []metav1.ManagedFieldsEntry) sets.Set[string] {
	written, others := sets.New[string](), sets.New[string]()
	for _, entry := range entries {
		for field := range owned(entry, fieldsOfReferences) {
			// Object names need no escaping (sigs.k8s.io/structured-merge-diff, fieldpath serialization).
			name, is := strings.CutPrefix(strings.TrimSuffix(field, entryEnd), entryBegin)
			switch {
			case !is || len(validation.IsDNS1123Subdomain(name)) > 0:
			case slices.Contains(tokenControllers, entry.Manager):
				written.Insert(name)
			default:
				others.Insert(name)
			}
		}
	}
	return written.Difference(others)
}

// KeepWrittenReferences returns the part of a ServiceAccount's managedFields that WrittenReferences
// needs.
func KeepWrittenReferences(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	fields := map[string]struct{}{}
	for name := range WrittenReferences(entries) {
		fields[entryBegin+name+entryEnd] = struct{}{}
	}
	if len(fields) == 0 {
		return nil
	}
	encoded, err := json.Marshal(map[string]any{fieldsOfReferences: fields})
	if err != nil {
		return nil // strings can be encoded
	}
	return []metav1.ManagedFieldsEntry{{Manager: meta.FieldManager, FieldsV1: metav1.NewFieldsV1(string(encoded))}}
}

// UnattributedReferences returns the names in the account's secrets list that no Secret has, as
// exists reports, and that a user may have written, before or after the life of the Secret. Token
// controllers leave these alone.
func UnattributedReferences(account *corev1.ServiceAccount, exists func(secret string) bool) []string {
	written, names := WrittenReferences(account.ManagedFields), []string(nil)
	for _, ref := range account.Secrets {
		if ref.Name != "" && !written.Has(ref.Name) && !exists(ref.Name) {
			names = append(names, ref.Name)
		}
		written.Insert(ref.Name) // each name once, in a list of any length
	}
	return names
}

// tokenWriter returns the field manager that wrote data.token last, "" if managedFields do not say.
func tokenWriter(entries []metav1.ManagedFieldsEntry) (manager string) {
	var last time.Time
	for _, entry := range entries {
		at := ptr.Deref(entry.Time, metav1.Time{})
		if owns(entry, fieldsOfData, fieldOfToken) && !at.Time.Before(last) {
			manager, last = entry.Manager, at.Time
		}
	}
	return manager
}

// Members of fieldsV1.
const (
	fieldsOfData       = "f:data"
	fieldOfToken       = "f:" + corev1.ServiceAccountTokenKey
	fieldsOfReferences = "f:secrets"

	// Between these is the name of an entry of f:secrets.
	entryBegin = `k:{"name":"`
	entryEnd   = `"}`
)

// owns reports whether the entry owns the field at path.
func owns(entry metav1.ManagedFieldsEntry, path ...string) bool {
	return owned(entry, path...) != nil
}

// owned returns the fields below path if the entry owns that, and otherwise nil.
func owned(entry metav1.ManagedFieldsEntry, path ...string) map[string]json.RawMessage {
	if entry.FieldsV1 == nil {
		return nil
	}
	raw := json.RawMessage(entry.FieldsV1.GetRawBytes())
	for _, field := range path {
		if !bytes.Contains(raw, []byte(field)) {
			return nil // as in most entries; decoding is expensive
		}
		raw = members(raw)[field]
	}
	return members(raw)
}

func members(raw []byte) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if jsonv2.Unmarshal(raw, &fields) != nil {
		return nil
	}
	return fields
}
