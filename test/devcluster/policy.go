// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// RewriteRootCA has a policy put another root CA into the ConfigMaps of a namespace at each update, and a stamp, so that no two are
// alike. Both objects have the name of the namespace.
func RewriteRootCA(ctx context.Context, client kubernetes.Interface, namespace string) error {
	policies := client.AdmissionregistrationV1()
	name := metav1.ObjectMeta{Name: namespace}
	_, err1 := policies.MutatingAdmissionPolicies().Create(ctx, &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: name,
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Ignore), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				},
			}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "namespace", Expression: "object.metadata.namespace == '" + namespace + "'"}},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: "Object{metadata: Object.metadata{annotations: " +
					"{'example.com/stamp': oldObject.metadata.resourceVersion}}, data: {'ca.crt': 'of somebody else'}}"},
			}},
		},
	}, metav1.CreateOptions{})
	_, err2 := policies.MutatingAdmissionPolicyBindings().Create(ctx, &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: name, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name.Name},
	}, metav1.CreateOptions{})
	return errors.Join(err1, err2)
}
