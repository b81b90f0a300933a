// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/faults/workload"
)

// JudgeReissue looks at what a token controller has made once all is quiet after a rotation
// (docs/architecture.md, "When a token Secret is re-issued"). A Secret with a token of a retired
// key is replaced by exactly one other Secret, any other by one at most, as a rollback may have
// left it; and the first one that an account is led to bears the key that signs. Accounts whose list a
// user has edited are left out: a user may take the pair apart. retired reports whether a token is
// signed with a retired key.
func JudgeReissue(now Snapshot, model workload.Model, retired func(token string) bool) []Violation {
	var found []Violation
	replacing := map[types.NamespacedName][]string{}
	for _, secret := range Sorted(now.Secrets) {
		if replaced := secret.Annotations[workload.ReplacesLabel]; replaced != "" && secret.Type == corev1.SecretTypeServiceAccountToken {
			of := Key(secret.Namespace, replaced)
			replacing[of] = append(replacing[of], secret.Name)
		}
	}
	for _, secret := range Sorted(now.Secrets) {
		if secret.Type != corev1.SecretTypeServiceAccountToken || secret.Labels[workload.AutoCreatedLabel] == "" ||
			model.Edited(secret.Namespace, secret.Annotations[corev1.ServiceAccountNameKey]) {
			continue
		}
		successors := replacing[Key(secret.Namespace, fmt.Sprintf("%s/%s", secret.Name, secret.UID))]
		isRetired := retired(string(secret.Data[corev1.ServiceAccountTokenKey]))
		if len(successors) > 1 || isRetired && len(successors) == 0 {
			found = append(found, Violated(3, "token Secret %s/%s (key retired: %t) has %d successors: %q", secret.Namespace, secret.Name, isRetired,
				len(successors), successors))
		}
	}
	for _, account := range Sorted(now.Accounts) {
		at := slices.IndexFunc(account.Secrets, func(ref corev1.ObjectReference) bool {
			secret := now.Secrets[Key(account.Namespace, ref.Name)]
			return secret != nil && secret.Labels[workload.AutoCreatedLabel] != "" && workload.Owner(secret) == account.UID
		})
		if at < 0 || model.Edited(account.Namespace, account.Name) {
			continue
		}
		first := now.Secrets[Key(account.Namespace, account.Secrets[at].Name)]
		if retired(string(first.Data[corev1.ServiceAccountTokenKey])) {
			found = append(found, Violated(3, "account %s/%s references %s first, whose key is retired", account.Namespace, account.Name,
				first.Name))
		}
	}
	return found
}

// CountReissued is how many token Secrets replace another one.
func CountReissued(now Snapshot) int {
	n := 0
	for _, secret := range now.Secrets {
		if secret.Type == corev1.SecretTypeServiceAccountToken && secret.Annotations[workload.ReplacesLabel] != "" {
			n++
		}
	}
	return n
}
