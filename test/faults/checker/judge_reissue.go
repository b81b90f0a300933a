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

// JudgeReissue compares what there is once all is quiet after a rotation with docs/architecture.md, "When a token Secret is
// re-issued". Exactly one Secret replaces one with a token of a retired key, and at most one any other, as a rollback may have
// left it; and the first Secret that an account leads to bears the key that signs. Accounts whose list a user has edited are
// left out: a user may take the pair apart.
func JudgeReissue(now Snapshot, model workload.Model, retiredToken func(string) bool) (found []Violation, reissued int) {
	retired := func(secret *corev1.Secret) bool {
		return retiredToken(string(secret.Data[corev1.ServiceAccountTokenKey]))
	}
	replacing, judged := map[types.NamespacedName][]string{}, map[types.NamespacedName]*corev1.Secret{}
	for _, secret := range Sorted(now.Secrets) {
		if replaced := secret.Annotations[workload.ReplacesLabel]; replaced != "" && secret.Type == corev1.SecretTypeServiceAccountToken {
			of := Key(secret.Namespace, replaced)
			replacing[of] = append(replacing[of], secret.Name)
			reissued++
		}
		if secret.Type == corev1.SecretTypeServiceAccountToken && secret.Labels[workload.AutoCreatedLabel] != "" &&
			!model.Edited(secret.Namespace, secret.Annotations[corev1.ServiceAccountNameKey]) {
			judged[Key(secret.Namespace, secret.Name)] = secret
		}
	}
	for _, secret := range Sorted(judged) {
		successors := replacing[Key(secret.Namespace, fmt.Sprintf("%s/%s", secret.Name, secret.UID))]
		if len(successors) > 1 || retired(secret) && len(successors) == 0 {
			found = append(found, Violated(3, "token Secret %s/%s (key retired: %t) has %d successors: %q", secret.Namespace, secret.Name,
				retired(secret), len(successors), successors))
		}
	}
	for _, account := range Sorted(now.Accounts) {
		at := slices.IndexFunc(account.Secrets, func(ref corev1.ObjectReference) bool {
			secret := judged[Key(account.Namespace, ref.Name)]
			return secret != nil && workload.Owner(secret) == account.UID
		})
		if at >= 0 && retired(judged[Key(account.Namespace, account.Secrets[at].Name)]) {
			found = append(found, Violated(3, "account %s/%s references %s first, whose key is retired", account.Namespace, account.Name,
				account.Secrets[at].Name))
		}
	}
	return found, reissued
}
