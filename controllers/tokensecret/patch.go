// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/controllers/view"
)

// patchMetadata carries the preconditions: kube-apiserver answers 409 to a patch
// whose UID or resourceVersion is not the object's.
type patchMetadata struct {
	UID             types.UID          `json:"uid"`
	ResourceVersion string             `json:"resourceVersion"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
}

// secretPatch is a JSON merge patch: members of data that it does not name stay, and those
// that are nil go, as with annotations. Values are base64, as in any Secret.
type secretPatch struct {
	Metadata patchMetadata     `json:"metadata"`
	Data     map[string][]byte `json:"data,omitempty"`
}

func (p secretPatch) encode() ([]byte, error) { return json.Marshal(p) }

// accountPatch is a strategic merge patch. The secrets list of a ServiceAccount is
// merged by name, so entries that the patch does not name stay as they are.
type accountPatch struct {
	Metadata patchMetadata `json:"metadata"`
	Secrets  []entryPatch  `json:"secrets"`
	// Order is that of the list afterwards, by name.
	Order []entryPatch `json:"$setElementOrder/secrets,omitempty"`
}

type entryPatch struct {
	Directive string `json:"$patch,omitempty"`
	Name      string `json:"name"`
}

func addReference(account *corev1.ServiceAccount, secret string) ([]byte, error) {
	return json.Marshal(accountPatch{Metadata: accountPrecondition(account), Secrets: []entryPatch{{Name: secret}}})
}

// ReferenceFirst is a strategic merge patch that puts secret at the head of the list
// of exactly this version of account. All other entries stay, in their order.
func ReferenceFirst(account *corev1.ServiceAccount, secret string) ([]byte, error) {
	order := []entryPatch{{Name: secret}}
	for _, ref := range account.Secrets {
		if ref.Name != secret {
			order = append(order, entryPatch{Name: ref.Name})
		}
	}
	return json.Marshal(accountPatch{Metadata: accountPrecondition(account), Secrets: []entryPatch{{Name: secret}}, Order: order})
}

func removeReference(account *corev1.ServiceAccount, secret string) ([]byte, error) {
	return json.Marshal(accountPatch{Metadata: accountPrecondition(account), Secrets: []entryPatch{{Directive: "delete", Name: secret}}})
}

func accountPrecondition(account *corev1.ServiceAccount) patchMetadata {
	return patchMetadata{UID: account.UID, ResourceVersion: account.ResourceVersion}
}

func precondition(secret *view.TokenSecret) patchMetadata {
	return patchMetadata{UID: secret.UID, ResourceVersion: secret.ResourceVersion}
}

// onlyThis makes a delete apply to the version of the Secret that was decided on.
func onlyThis(secret *view.TokenSecret) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}}
}
