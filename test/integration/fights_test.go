// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

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

// TestTokenSecretDeletedAgainAndAgain: another client deletes the token Secret of an account whenever there is one. A new one comes
// ten seconds after the last one, and not before: one takes a signature and four requests.
func TestTokenSecretDeletedAgainAndAgain(t *testing.T) {
	const least = 9 * time.Second // of times in whole seconds
	c := testcluster.Shared(t)
	c.Manage(t, "--token-secrets=auto", "-v=2")
	namespace := c.Namespace(t)
	var last *corev1.Secret
	for range 2 {
		var next *corev1.Secret
		c.AwaitSecrets(t, namespace, func(secrets []*corev1.Secret) error {
			for _, secret := range secrets {
				if last == nil || secret.UID != last.UID {
					next = secret
					return nil
				}
			}
			return errors.New("there is no new one")
		})
		if last != nil {
			if gap := next.CreationTimestamp.Sub(last.CreationTimestamp.Time); gap < least {
				t.Fatalf("the next Secret was created %v after the one before, want %v at least", gap, least)
			}
		}
		last = next
		testutil.Must(t, c.API.CoreV1().Secrets(namespace).Delete(t.Context(), last.Name, metav1.DeleteOptions{}))
	}
}
