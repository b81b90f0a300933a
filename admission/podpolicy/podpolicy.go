// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podpolicy is about the ValidatingAdmissionPolicy that refuses a Pod without an account while
// neither the webhook nor the plugin of kube-apiserver gives it one. Its definition is in
// manifests/permissions/policy. Nothing here creates or repairs it: users may do without.
package podpolicy

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Name is the name of the policy and of its binding.
const Name = "sa-controller-manager-pods"

// Problem returns why the policy refuses no Pod, or "" if it does. It reads two objects.
func Problem(ctx context.Context, client kubernetes.Interface) (string, error) {
	const effect = ", so that Pods without an account are admitted while the webhook is away"
	_, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "there is no ValidatingAdmissionPolicy " + Name + effect, nil
	}
	if err != nil {
		return "", fmt.Errorf("read ValidatingAdmissionPolicy %s: %w", Name, err)
	}
	binding, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "there is no ValidatingAdmissionPolicyBinding " + Name + effect, nil
	}
	if err != nil {
		return "", fmt.Errorf("read ValidatingAdmissionPolicyBinding %s: %w", Name, err)
	}
	if actions := binding.Spec.ValidationActions; !slices.Contains(actions, admissionregistrationv1.Deny) {
		return fmt.Sprintf("the ValidatingAdmissionPolicyBinding %s has the actions %v and not Deny%s", Name, actions, effect), nil
	}
	return "", nil
}

// SetAction has the policy deny or warn. It is a no-op if there is no binding.
func SetAction(ctx context.Context, client kubernetes.Interface, action admissionregistrationv1.ValidationAction) error {
	patch := fmt.Appendf(nil, `{"spec":{"validationActions":[%q]}}`, action)
	_, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Patch(ctx, Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("change ValidatingAdmissionPolicyBinding %s to %s: %w", Name, action, err)
	}
	return nil
}

// Delete deletes the binding and the policy.
func Delete(ctx context.Context, client kubernetes.Interface) error {
	err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ValidatingAdmissionPolicyBinding %s: %w", Name, err)
	}
	err = client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ValidatingAdmissionPolicy %s: %w", Name, err)
	}
	return nil
}
