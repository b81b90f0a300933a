// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
)

func TestPodPolicy(t *testing.T) {
	t.Parallel()
	policy, binding := clitest.Refusal(), clitest.RefusalBinding
	with := func(objects ...runtime.Object) []runtime.Object {
		return append(objects, clitest.Policy(podpolicy.Completion)...)
	}
	try(t, "policy", map[string]checkCase{
		"Denies": {reason: "all is well", objects: with(policy, binding(admissionregistrationv1.Deny))},
		"NoPolicy": {
			reason: "the binding alone refuses nothing", objects: with(binding(admissionregistrationv1.Deny)),
			want: []string{"policy-missing: there is no ValidatingAdmissionPolicy sa-controller-manager-pods"},
		},
		"NoBinding": {
			reason: "the policy alone refuses nothing", objects: with(policy),
			want: []string{"policy-missing: there is no ValidatingAdmissionPolicyBinding sa-controller-manager-pods"},
		},
		"Warns": {
			reason: "the webhook was unregistered", objects: with(policy, binding(admissionregistrationv1.Warn)),
			want: []string{"policy-missing: the ValidatingAdmissionPolicyBinding sa-controller-manager-pods is not that of this version: " +
				"its spec.validationActions is [Warn], want [Deny]"},
		},
		"NoCompletion": {
			reason: "a failure of ours refuses all Pods", objects: []runtime.Object{policy, binding(admissionregistrationv1.Deny)},
			want: []string{"completion-missing: there is no MutatingAdmissionPolicy sa-controller-manager-completion"},
		},
		"CompletesOtherwise": {
			reason: "with token Secrets the policy must go", objects: with(policy, binding(admissionregistrationv1.Deny)),
			change: func(_ *testing.T, c *cluster, _ *fake.Clientset) { c.Plugin.Mode = serviceaccount.Secret },
			want:   []string{"completion-unwanted"},
			remedy: "kubectl delete mutatingadmissionpolicybindings sa-controller-manager-completion-default",
		},
		"AfterAHandback": {
			reason: "kube-apiserver has its plugin", change: admits(nil, true, true, false), skipped: "kube-apiserver has its ServiceAccount plugin",
		},
		"Unknown": {
			reason: "an error is no finding", change: failing("get", "validatingadmissionpolicies"),
			wantErr: "read ValidatingAdmissionPolicy sa-controller-manager-pods: the API is down",
		},
	})
}
