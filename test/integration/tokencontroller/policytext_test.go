// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"errors"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/integration/testcluster"
)

// TestPolicyQuotesTheSecret covers policies whose refusal, or warning, repeats the object: the
// token that was written must not come into the log with it.
func TestPolicyQuotesTheSecret(t *testing.T) {
	c := testcluster.Shared(t)
	cases := map[string]struct {
		action admissionregistrationv1.ValidationAction
		log    string
	}{
		"Refusal": {admissionregistrationv1.Deny, "kube-apiserver answered 4"},
		"Warning": {admissionregistrationv1.Warn, "Filled token secret"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := c.Manage(t, "--token-secrets=manual", "--controllers=serviceaccount-token")
			m.ExpectErrors = true
			namespace := c.Namespace(t)
			quotingPolicy(t, c, namespace, tc.action)
			c.CreateAccount(t, namespace, "someone")
			c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
			m.ExpectLog(t, tc.log)
			for line := range strings.Lines(m.Logs()) {
				if strings.Contains(line, "eyJ") || strings.Contains(line, "ZXlK") { // in base64
					t.Errorf("a token is in the log: %.400s", line)
				}
			}
		})
	}
}

// quotingPolicy has writes of a namespace's Secrets that hold a token judged by a policy that
// quotes it, and waits until it is in force.
func quotingPolicy(t *testing.T, c *testcluster.ControlPlane, namespace string, action admissionregistrationv1.ValidationAction) {
	t.Helper()
	c.CreateSecret(t, testcluster.Opaque(namespace, "trial"))
	policies := c.API.AdmissionregistrationV1()
	meta := metav1.ObjectMeta{Name: "quotes-" + namespace}
	updates := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
	}
	_, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: updates}},
			},
			Validations: []admissionregistrationv1.Validation{{
				Expression:        "!has(object.data) || !('token' in object.data)",
				MessageExpression: "'the token is ' + string(object.data.token)",
			}},
		},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
	_, bound := policies.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: meta.Name, ValidationActions: []admissionregistrationv1.ValidationAction{action},
			MatchResources: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			},
		},
	}, metav1.CreateOptions{})
	t.Cleanup(func() {
		ctx := testcluster.CleanupContext(t)
		if err := errors.Join(policies.ValidatingAdmissionPolicyBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{}),
			policies.ValidatingAdmissionPolicies().Delete(ctx, meta.Name, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	if bound != nil {
		t.Fatal(bound)
	}
	quoted := &quotes{}
	config := c.Config()
	config.WarningHandler = quoted
	testcluster.Poll(t, "await the policy", func() error {
		err := patchAs(t, config, namespace)
		if quoted.heard || err != nil && strings.Contains(err.Error(), "the token is") {
			return nil
		}
		return errors.New("it is not in force")
	})
}

// patchAs writes a token into the trial's Secret, with dryRun.
func patchAs(t *testing.T, config *rest.Config, namespace string) error {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	testutil.Must(t, err)
	_, err = client.CoreV1().Secrets(namespace).Patch(t.Context(), "trial", types.MergePatchType, []byte(`{"stringData":{"token":"x"}}`),
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// quotes records whether a warning was received.
type quotes struct{ heard bool }

func (q *quotes) HandleWarningHeader(_ int, _, text string) {
	q.heard = q.heard || strings.Contains(text, "the token is")
}
