// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/internal/meta"
)

// ReferencePatch changes the secrets list of exactly one version of an account. kube-apiserver
// answers 409 for any other version.
type ReferencePatch struct {
	Type types.PatchType
	Body []byte
}

// accountPatch is a strategic merge patch. The secrets list of a ServiceAccount is
// merged by name, so entries that the patch does not name stay as they are.
type accountPatch struct {
	Metadata meta.PatchMetadata `json:"metadata"`
	Secrets  []entryPatch       `json:"secrets"`
	// Order is that of the list afterwards, by name.
	Order []entryPatch `json:"$setElementOrder/secrets,omitempty"`
}

type entryPatch struct {
	Directive string `json:"$patch,omitempty"`
	Name      string `json:"name"`
}

// wholeList is a JSON merge patch, with all entries of the list afterwards.
type wholeList struct {
	Metadata meta.PatchMetadata       `json:"metadata"`
	Secrets  []corev1.ObjectReference `json:"secrets"`
}

// addReference adds a new entry to the list, at the head, where a merge puts it.
func addReference(account *corev1.ServiceAccount, secret string) (ReferencePatch, error) {
	added := append([]corev1.ObjectReference{{Name: secret}}, account.Secrets...)
	return changeReferences(account, accountPatch{Secrets: []entryPatch{{Name: secret}}}, added)
}

// ReferenceFirst puts secret at the head of the list of exactly this version of account.
// All other entries stay, in their order; a merge only puts repeated ones together.
func ReferenceFirst(account *corev1.ServiceAccount, secret string) (ReferencePatch, error) {
	first := append([]corev1.ObjectReference{{Name: secret}}, withoutReference(account, secret)...)
	var order []entryPatch
	for _, ref := range first {
		order = append(order, entryPatch{Name: ref.Name})
	}
	return changeReferences(account, accountPatch{Secrets: []entryPatch{{Name: secret}}, Order: order}, first)
}

func removeReference(account *corev1.ServiceAccount, secret string) (ReferencePatch, error) {
	patch := accountPatch{Secrets: []entryPatch{{Directive: "delete", Name: secret}}}
	return changeReferences(account, patch, withoutReference(account, secret))
}

func withoutReference(account *corev1.ServiceAccount, secret string) []corev1.ObjectReference {
	return slices.DeleteFunc(slices.Clone(account.Secrets), func(ref corev1.ObjectReference) bool { return ref.Name == secret })
}

// changeReferences prefers the patch that names only the change. kube-apiserver refuses to merge a
// list with an entry that has no name (k8s.io/apimachinery pkg/util/strategicpatch), so the whole
// list of such an account is written, which is as safe for exactly one version.
func changeReferences(account *corev1.ServiceAccount, patch accountPatch, after []corev1.ObjectReference) (ReferencePatch, error) {
	if slices.ContainsFunc(account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == "" }) {
		body, err := json.Marshal(wholeList{Metadata: meta.PatchOf(account), Secrets: after})
		return ReferencePatch{Type: types.MergePatchType, Body: body}, err
	}
	patch.Metadata = meta.PatchOf(account)
	body, err := json.Marshal(patch)
	return ReferencePatch{Type: types.StrategicMergePatchType, Body: body}, err
}
