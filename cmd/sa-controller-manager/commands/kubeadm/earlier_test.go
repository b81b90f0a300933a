// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/admission/registration"
)

// TestEarlier: who changes Pods before our webhook is named before kube-apiserver loses its plugin.
func TestEarlier(t *testing.T) {
	t.Parallel()
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
			},
		},
	}
	webhook := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "00-a"},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "a", Rules: []admissionregistrationv1.RuleWithOperations{rule}}},
	}
	for mode, want := range map[registration.Mode]string{
		registration.Static: "(docs/comparison.md): MutatingAdmissionPolicy theirs.",
		registration.URL:    "(docs/comparison.md): MutatingAdmissionPolicy theirs, MutatingWebhookConfiguration 00-a.",
		registration.None:   "",
	} {
		p := newControlPlane(t, "v1.37")
		p.config.Client, p.config.Registration = fake.NewClientset(policy, webhook), mode
		steps := p.steps(t, takeover)
		notes := strings.Join(steps[len(steps)-1].notes, "\n")
		if got := strings.Contains(notes, "These change Pods before"); got != (want != "") || !strings.Contains(notes, want) {
			t.Errorf("%s: %q, want %q", mode, notes, want)
		}
	}
}
