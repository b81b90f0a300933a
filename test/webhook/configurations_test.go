// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	clientv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

type (
	mutatingConfiguration   = admissionregistrationv1.MutatingWebhookConfiguration
	validatingConfiguration = admissionregistrationv1.ValidatingWebhookConfiguration
)

func (c *cluster) mutating() clientv1.MutatingWebhookConfigurationInterface {
	return c.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
}

func (c *cluster) validating() clientv1.ValidatingWebhookConfigurationInterface {
	return c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
}

// awaitMutating returns the product's MutatingWebhookConfiguration once it passes the
// check.
func (c *cluster) awaitMutating(t *testing.T, check func(*mutatingConfiguration) error) *mutatingConfiguration {
	t.Helper()
	return awaitConfiguration(t, c, "mutatingwebhookconfigurations", &mutatingConfiguration{}, check)
}

// awaitValidating is the same for the other one.
func (c *cluster) awaitValidating(t *testing.T, check func(*validatingConfiguration) error) *validatingConfiguration {
	t.Helper()
	return awaitConfiguration(t, c, "validatingwebhookconfigurations", &validatingConfiguration{}, check)
}

func awaitConfiguration[T await.Object](t *testing.T, c *cluster, resource string, example T, check func(T) error) T {
	t.Helper()
	lw := cache.NewListWatchFromClient(c.client.AdmissionregistrationV1().RESTClient(), resource, "", fields.Everything())
	found, err := await.Objects(limited(t), lw, example, func(all []T) error {
		one, ok := await.Find(all, configurationName)
		if !ok {
			return fmt.Errorf("%s %q does not exist", resource, configurationName)
		}
		return check(one)
	})
	if err != nil {
		t.Fatalf("await the %s: %v", resource, err)
	}
	one, _ := await.Find(found, configurationName)
	return one
}

// patchMutating applies a JSON patch, as kubectl patch --type=json does.
func (c *cluster) patchMutating(t *testing.T, patch string) *mutatingConfiguration {
	t.Helper()
	patched, err := c.mutating().Patch(t.Context(), configurationName, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	testutil.Must(t, err)
	return patched
}

// patchValidating applies a JSON patch to the other one.
func (c *cluster) patchValidating(t *testing.T, patch string) *validatingConfiguration {
	t.Helper()
	patched, err := c.validating().Patch(t.Context(), configurationName, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	testutil.Must(t, err)
	return patched
}
