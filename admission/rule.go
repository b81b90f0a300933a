// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

// PodRule returns the rule of a webhook configuration for one operation on pods or a subresource, pods/NAME. Every field is
// set, so that the object that the apiserver returns compares equal.
func PodRule(resource string, operation Operation) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationType(operation)},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource},
			Scope: new(admissionregistrationv1.AllScopes),
		},
	}
}
