// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/internal/testutil"
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
	p := newControlPlane(t, "v1.37")
	p.config.Client = fake.NewClientset(policy)
	p.refuses(t, "dry run", Takeover, "pods \"kube-apiserver-n\" not found")
	want := "(docs/comparison.md): MutatingAdmissionPolicy theirs."
	testutil.Expect(t, strings.Contains(p.out.String(), want), "it does not print %q:\n%s", want, &p.out)
}
