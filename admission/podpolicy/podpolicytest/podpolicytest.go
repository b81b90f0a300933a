// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podpolicytest makes the policy for Pods for tests.
package podpolicytest

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission/podpolicy"
)

// Policy returns the policy, without rules.
func Policy() *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: podpolicy.Name}}
}

// Binding returns its binding with an action.
func Binding(action admissionregistrationv1.ValidationAction) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: podpolicy.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			ValidationActions: []admissionregistrationv1.ValidationAction{action},
		},
	}
}
