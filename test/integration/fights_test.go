// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestRewrittenRootCA: a policy of somebody else puts another root CA into a ConfigMap at each write. Few writes answer
// that, each of them counts as replaced, and an Event says so.
func TestRewrittenRootCA(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, publisherAlone, "-v=2")
	m.ExpectErrors = true
	namespace := c.Namespace(t)
	c.AwaitConfigMap(t, namespace, rootCAName, func(*corev1.ConfigMap) error { return nil })
	testutil.Must(t, devcluster.RewriteRootCA(t.Context(), c.API, namespace))
	t.Cleanup(func() {
		policies, ctx := c.API.AdmissionregistrationV1(), context.WithoutCancel(t.Context())
		testutil.Must(t, errors.Join(
			policies.MutatingAdmissionPolicyBindings().Delete(ctx, namespace, metav1.DeleteOptions{}),
			policies.MutatingAdmissionPolicies().Delete(ctx, namespace, metav1.DeleteOptions{}),
		))
	})
	testcluster.Poll(t, "await that the policy acts", func() error {
		configMap, err := c.API.CoreV1().ConfigMaps(namespace).Patch(t.Context(), rootCAName, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":%q}}}`, rand.String(8)), metav1.PatchOptions{})
		if err == nil && configMap.Data["ca.crt"] == c.RootCA(t) {
			err = errors.New("ca.crt has the root CA still")
		}
		return err
	})
	const replaced = "sacm_root_ca_replaced_by_others_total"
	before, sent := m.Metric(t, replaced, nil), requestsOf(t, m)
	testcluster.Poll(t, "await that "+replaced+" grows", func() error {
		now := requestsOf(t, m)
		if writes := now["PUT"] + now["PATCH"] - sent["PUT"] - sent["PATCH"]; writes > 20 {
			t.Fatalf("%v writes to one ConfigMap", writes)
		}
		if n := m.Metric(t, replaced, nil) - before; n < 3 {
			return fmt.Errorf("it has grown by %v, want 3", n)
		}
		return nil
	})
	awaitWarning(t, c, namespace, "ConfigMap", rootCAName, "again and again")
}
