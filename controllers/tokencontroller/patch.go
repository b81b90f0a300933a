// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"context"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/internal/meta"
)

// patchReferences replaces the secrets list of exactly this version of account; kube-apiserver answers 409 for any other. A
// patch that is merged by name would be no safer, it fails for a list with an entry that has no name, and to merge
// a long list takes kube-apiserver seconds (k8s.io/apimachinery pkg/util/strategicpatch).
func patchReferences(
	ctx context.Context, client kubernetes.Interface, account *corev1.ServiceAccount, list []corev1.ObjectReference,
) error {
	body, err := json.Marshal(struct {
		Metadata meta.PatchMetadata       `json:"metadata"`
		Secrets  []corev1.ObjectReference `json:"secrets"`
	}{meta.PatchOf(account), list})
	if err != nil {
		return err
	}
	patched, err := client.CoreV1().ServiceAccounts(account.Namespace).Patch(ctx, account.Name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: meta.FieldManager})
	if err != nil {
		return err
	}
	return meta.CheckChanged(account, patched)
}

// ReferenceFirst puts secret at the head of the list of exactly this version of account. All other entries stay, in their
// order.
func ReferenceFirst(ctx context.Context, client kubernetes.Interface, account *corev1.ServiceAccount, secret string) error {
	first := append([]corev1.ObjectReference{{Name: secret}}, without(account, sets.New(secret))...)
	if slices.Equal(first, account.Secrets) {
		return nil
	}
	return patchReferences(ctx, client, account, first)
}

func without(account *corev1.ServiceAccount, secrets sets.Set[string]) []corev1.ObjectReference {
	return slices.DeleteFunc(slices.Clone(account.Secrets), func(ref corev1.ObjectReference) bool { return secrets.Has(ref.Name) })
}
