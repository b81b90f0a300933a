// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestRefusedWriteSaysWhy: kube-apiserver refuses a write of a Secret because of something that its user can change. The user
// and the log get what kube-apiserver said, but for a piece of a Secret, and the write follows once it is allowed.
func TestRefusedWriteSaysWhy(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--token-secrets=auto")
	m.ExpectErrors = true

	t.Run("Policy", func(t *testing.T) { // ai-dynamo/grove#218
		namespace := c.Namespace(t)
		account := c.CreateAccount(t, namespace, "job")
		c.AwaitAutoSecret(t, namespace, account.Name)
		allow := refuseUpdates(t, c, namespace)
		secret := c.CreateSecret(t, testcluster.TokenSecret(namespace, "managed", account.Name))
		awaitWarning(t, c, namespace, "Secret", secret.Name, "only-by-the-operator")
		m.ExpectLog(t, "only-by-the-operator")
		allow()
		c.AwaitFilled(t, namespace, secret.Name)
	})

	t.Run("Quota", func(t *testing.T) { // openshift/origin#8660
		namespace := c.Namespace(t)
		c.AwaitAutoSecret(t, namespace, "default")
		limit := func(secrets string) {
			quotas, hard := c.API.CoreV1().ResourceQuotas(namespace), corev1.ResourceList{corev1.ResourceSecrets: resource.MustParse(secrets)}
			quota, err := quotas.Get(t.Context(), "few-secrets", metav1.GetOptions{})
			if err != nil {
				quota, err = quotas.Create(t.Context(), &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Name: "few-secrets"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
				}, metav1.CreateOptions{})
			}
			testutil.Must(t, err)
			// No controller of quotas runs here.
			quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{corev1.ResourceSecrets: resource.MustParse("1")}}
			testutil.Get(quotas.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{}))(t)
		}
		limit("1")
		account := c.CreateAccount(t, namespace, "job")
		awaitWarning(t, c, namespace, "ServiceAccount", account.Name, "exceeded quota: few-secrets")
		limit("9")
		c.AwaitAutoSecret(t, namespace, account.Name)
	})
}

// refuseUpdates has a policy refuse updates of the Secrets of a namespace. It waits until that acts, and returns a function that ends it.
func refuseUpdates(t *testing.T, c *testcluster.ControlPlane, namespace string) (allow func()) {
	t.Helper()
	policies, name := c.API.AdmissionregistrationV1(), metav1.ObjectMeta{Name: namespace}
	_, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: name,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
				},
			}}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "namespace", Expression: "object.metadata.namespace == '" + namespace + "'",
			}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "request.userInfo.username == 'operator'", Message: "only-by-the-operator",
			}},
		},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: name,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: namespace, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
	probe := c.CreateSecret(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}})
	testcluster.Poll(t, "await that the policy acts", func() error {
		_, err := c.API.CoreV1().Secrets(namespace).Update(t.Context(), probe, metav1.UpdateOptions{})
		if err == nil {
			return errors.New("an update is allowed")
		}
		return nil
	})
	removed := false
	allow = func() {
		if !removed {
			ctx := context.WithoutCancel(t.Context())
			testutil.Must(t, errors.Join(
				policies.ValidatingAdmissionPolicyBindings().Delete(ctx, namespace, metav1.DeleteOptions{}),
				policies.ValidatingAdmissionPolicies().Delete(ctx, namespace, metav1.DeleteOptions{}),
			))
		}
		removed = true
	}
	t.Cleanup(allow)
	return allow
}

// awaitWarning waits for a Warning about an object whose note contains text.
func awaitWarning(t *testing.T, c *testcluster.ControlPlane, namespace, kind, name, text string) {
	t.Helper()
	testcluster.Poll(t, fmt.Sprintf("await a Warning about %s %s", kind, name), func() error {
		events, err := c.API.EventsV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			about := event.Regarding
			if about.Kind == kind && about.Name == name && event.Type == corev1.EventTypeWarning && strings.Contains(event.Note, text) {
				return nil
			}
		}
		return fmt.Errorf("none of %d Events says %q", len(events.Items), text)
	})
}

// TestUndecryptableSecret: kube-apiserver can list no Secret because of one whose key is lost. What needs no Secrets goes on, readiness
// says why the rest does not, and it does once the Secret is gone.
func TestUndecryptableSecret(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, devcluster.Options{})
	const lost = "/registry/secrets/default/lost"
	testutil.Must(t, c.PutIntoEtcd(t.Context(), lost, "k8s:enc:aescbc:v1:lost-key:anything"))
	testcluster.Poll(t, "await that Secrets cannot be listed", func() error {
		if _, err := c.API.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err == nil {
			return errors.New("they can")
		}
		return nil
	})
	m := c.StartManager(t, "--token-secrets=auto")
	m.ExpectErrors = true
	namespace := c.Namespace(t)
	c.AwaitAccounts(t, namespace, "default")
	c.AwaitConfigMap(t, namespace, rootCAName, func(*corev1.ConfigMap) error { return nil })
	testcluster.Poll(t, "await that readiness says why", func() error {
		_, err := m.Get(t.Context(), "/readyz?verbose")
		if err == nil {
			return errors.New("it is ready")
		}
		if !strings.Contains(err.Error(), "secrets") || !strings.Contains(err.Error(), "encrypted") {
			return fmt.Errorf("it does not name the Secrets and the reason: %w", err)
		}
		return nil
	})
	testutil.Must(t, c.PutIntoEtcd(t.Context(), lost, ""))
	m.AwaitReady(t)
	c.AwaitAutoSecret(t, namespace, "default")
}
