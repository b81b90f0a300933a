// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"

	"sa-controller-manager/test/await"
)

const withoutAccount = "the Pod has no ServiceAccount"

// restrict creates the policy for Pods, as the manifests have it, and returns once it acts.
func (c *cluster) restrict(t *testing.T) {
	t.Helper()
	objects, err := manifests.PodPolicy()
	testutil.Must(t, err)
	c.apply(t, objects)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
		defer cancel()
		testutil.Must(t, podpolicy.Refusal.Delete(ctx, c.client))
		// It acts for a moment more, and the next test is not to meet it.
		testutil.Must(t, await.Poll(ctx, func(ctx context.Context) error {
			if _, err := c.try(ctx, metav1.NamespaceDefault, newPod()); err != nil && strings.Contains(err.Error(), withoutAccount) {
				return err
			}
			return nil
		}))
	})
	c.awaitBare(t, false)
}

// awaitBare returns once a Pod without an account is admitted, or refused by the policy.
func (c *cluster) awaitBare(t *testing.T, admitted bool) {
	t.Helper()
	poll(t, "await the policy for Pods", func(ctx context.Context) error {
		_, err := c.try(ctx, metav1.NamespaceDefault, newPod())
		if refused := err != nil && strings.Contains(err.Error(), withoutAccount); refused == admitted || !refused && err != nil {
			return fmt.Errorf("got %v, want it admitted %t", err, admitted)
		}
		return nil
	})
}

// TestPodPolicy has neither plugin nor webhook, but in the end.
func TestPodPolicy(t *testing.T) {
	c := controlPlane(t)
	namespace := c.namespace(t)
	older := c.create(t, namespace, newPod())
	_, problem, err := podpolicy.Refusal.Problem(t.Context(), c.client)
	if err != nil || !strings.Contains(problem, "no ValidatingAdmissionPolicyBinding ") {
		t.Errorf("without a policy the problem is %q, %v", problem, err)
	}
	c.restrict(t)
	if _, problem, err := podpolicy.Refusal.Problem(t.Context(), c.client); err != nil || problem != "" {
		t.Errorf("the problem is %q, %v", problem, err)
	}

	c.refuse(t, namespace, newPod(), withoutAccount)
	c.refuse(t, metav1.NamespaceSystem, newPod(), withoutAccount)
	c.refuse(t, namespace, newPod(func(pod *corev1.Pod) { pod.Annotations = map[string]string{"a": "b"} }), withoutAccount)
	named := c.create(t, namespace, newPod(of("nobody")))
	c.create(t, namespace, newPod(mirror))
	for _, pod := range []*corev1.Pod{older, named} {
		if err := c.debug(t, pod); err != nil {
			t.Errorf("kubectl debug: %v", err)
		}
		_, err := c.client.CoreV1().Pods(namespace).Patch(t.Context(), pod.Name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Errorf("an update: %v", err)
		}
		_, err = c.client.CoreV1().Pods(namespace).Patch(t.Context(), pod.Name, types.MergePatchType,
			[]byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
		if err != nil {
			t.Errorf("an update of the status: %v", err)
		}
		if err := c.client.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("a deletion: %v", err)
		}
	}

	testutil.Must(t, podpolicy.SetAction(t.Context(), c.client, admissionregistrationv1.Warn))
	c.awaitBare(t, true)
	_, problem, err = podpolicy.Refusal.Problem(t.Context(), c.client)
	if err != nil || !strings.Contains(problem, "spec.validationActions is [Warn], want [Deny]") {
		t.Errorf("the problem is %q, %v", problem, err)
	}
	testutil.Must(t, podpolicy.SetAction(t.Context(), c.client, admissionregistrationv1.Deny))
	c.awaitBare(t, false)

	c.manage(t)
	if pod := c.create(t, namespace, newPod()); pod.Spec.ServiceAccountName != "default" {
		t.Errorf("with the webhook a Pod has the account %q", pod.Spec.ServiceAccountName)
	}
}
