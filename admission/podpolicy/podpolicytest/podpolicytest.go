// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podpolicytest makes the policies for Pods for tests.
package podpolicytest

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"sa-controller-manager/admission/podpolicy"
)

// Objects returns the objects of a policy as the manifests have them.
func Objects(policy podpolicy.Policy) []runtime.Object {
	all, err := policy.Objects()
	if err != nil {
		panic(err) // they are embedded
	}
	var decoded []runtime.Object
	for _, one := range all {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(one.YAML, nil, nil)
		if err != nil {
			panic(err)
		}
		decoded = append(decoded, object)
	}
	return decoded
}

// Policy returns the policy that refuses Pods.
func Policy() *admissionregistrationv1.ValidatingAdmissionPolicy {
	return Objects(podpolicy.Refusal)[1].(*admissionregistrationv1.ValidatingAdmissionPolicy) //nolint:forcetypeassert // see there
}

// Binding returns its binding with an action.
func Binding(action admissionregistrationv1.ValidationAction) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	binding := Objects(podpolicy.Refusal)[0].(*admissionregistrationv1.ValidatingAdmissionPolicyBinding) //nolint:forcetypeassert // see there
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{action}
	return binding
}
