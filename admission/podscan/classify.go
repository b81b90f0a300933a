// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission/serviceaccount"
)

// mayLack reports whether the Pod was missed if its account wants a token mounted. It does not need
// the account.
func mayLack(config serviceaccount.Config, pod *corev1.Pod) bool {
	missing, _ := classify(config, pod, &corev1.ServiceAccount{})
	return len(missing) > 0
}

// classify returns what the Pod lacks, nothing if it was not missed; see the package comment. The
// account is nil if it does not exist.
func classify(config serviceaccount.Config, pod *corev1.Pod, account *corev1.ServiceAccount) (missing []Part, uncertain bool) {
	if hasEnded(pod) || pod.DeletionTimestamp != nil {
		return nil, false
	}
	lacks := config.MissingFrom(pod, account)
	if lacks.Account {
		// The plugin did not see this Pod, so the rest is certain too.
		missing = append(missing, Account)
		if lacks.Token {
			missing = append(missing, Token)
		}
		return missing, false
	}
	if !lacks.Token || lacks.TokenElsewhere {
		return nil, false
	}
	insists := pod.Spec.AutomountServiceAccountToken != nil
	return []Part{Token}, !insists && changedSince(account, pod.CreationTimestamp)
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// changedSince reports whether the account may have had other settings at that time. It returns
// false for an account that did not exist yet: the plugin would have refused the Pod. Times in the
// API are whole seconds. A change in the same second, as when both are applied together, does not
// count.
func changedSince(account *corev1.ServiceAccount, then metav1.Time) bool {
	if then.Before(&account.CreationTimestamp) {
		return false
	}
	for _, entry := range account.ManagedFields {
		if entry.Time != nil && then.Before(entry.Time) && !onlyReferences(entry) {
			return true
		}
	}
	return false
}

// onlyReferences reports whether an entry owns only the account's lists of Secrets. Controllers add
// to these at any time.
func onlyReferences(entry metav1.ManagedFieldsEntry) bool {
	var owned map[string]json.RawMessage
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
		return false
	}
	delete(owned, "f:secrets")
	delete(owned, "f:imagePullSecrets")
	return len(owned) == 0
}
