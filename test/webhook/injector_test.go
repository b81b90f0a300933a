// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
)

// TestInjectorAfterUs has another webhook, called after ours, add a container. The Pod
// is complete before that, so ours has nothing to do in the first round; it must be
// called all the same, for only who was called is called again.
func TestInjectorAfterUs(t *testing.T) {
	c := controlPlane(t)
	c.manage(t)
	namespace := c.namespace(t)
	plain := c.create(t, namespace, newPod())
	// What became of the first Pod is a complete one for the second.
	whole := newPod(func(pod *corev1.Pod) { pod.Spec = *plain.Spec.DeepCopy() })
	c.inject(t, namespace)
	poll(t, "await that kube-apiserver calls the injector", func(ctx context.Context) error {
		got, err := c.try(ctx, namespace, whole)
		if err == nil && len(got.Spec.Containers) == len(whole.Spec.Containers) {
			err = errors.New("there is no further container")
		}
		return err
	})
	pod := c.create(t, namespace, whole)
	if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "sidecar" }) {
		t.Fatalf("there is no sidecar: %v", pod.Spec.Containers)
	}
	complete(t, pod, "default")
	if len(pod.Spec.Volumes) != 1 {
		t.Errorf("the Pod has %d volumes, want the one it came with", len(pod.Spec.Volumes))
	}
}

// inject registers a webhook that adds a container "sidecar" to the Pods of a namespace.
func (c *cluster) inject(t *testing.T, namespace string) {
	t.Helper()
	c.hook(t, namespace, func() string {
		return `[{"op":"add","path":"/spec/containers/-","value":{"name":"sidecar","image":"image"}}]`
	})
}

// hook registers a webhook, called after ours, that changes the Pods of a namespace by a JSON patch.
func (c *cluster) hook(t *testing.T, namespace string, patch func() string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch),
			Patch: []byte(patch()),
		}
		review.Request = nil
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(review) // kube-apiserver says what it did not get
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	configuration, err := c.mutating().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "99-injector-"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:         "sidecar.injector.test",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new(server.URL), CABundle: authority},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		}},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
	t.Cleanup(func() {
		if err := c.mutating().Delete(context.WithoutCancel(t.Context()), configuration.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}
