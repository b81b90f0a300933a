// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/internal/testutil"
)

// policyObjects are those of a policy as the manifests have them.
func policyObjects(t *testing.T, policy podpolicy.Policy) (all []runtime.Object) {
	t.Helper()
	objects, err := policy.Objects()
	testutil.Must(t, err)
	for _, one := range objects {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(one.YAML, nil, nil)
		testutil.Must(t, err)
		all = append(all, object)
	}
	return all
}

// TestPodPolicyDetail: /readyz says what is wrong with the policies for Pods, and does not fail for it.
func TestPodPolicyDetail(t *testing.T) {
	t.Parallel()
	refusal, completion := policyObjects(t, podpolicy.Refusal), policyObjects(t, podpolicy.Completion)
	warning := policyObjects(t, podpolicy.Refusal)
	binding := warning[0].(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
	both := slices.Concat(refusal, completion)
	for name, tc := range map[string]struct {
		flags   []string
		objects []runtime.Object
		err     error
		want    string // part of the detail, "" for none
		code    string // of the finding in the metric
	}{
		"Right": {objects: both},
		"Warns": {
			objects: slices.Concat(warning, completion),
			want:    "its spec.validationActions is [Warn], want [Deny]", code: "policy-missing",
		},
		"NoCompletion": {objects: refusal, want: "finding completion-missing: the policy " +
			"sa-controller-manager-completion is missing", code: "completion-missing"},
		"Secret": {flags: []string{"--pod-token=secret"}, objects: refusal},
		"SecretAndCompletion": {
			flags: []string{"--pod-token=secret"}, objects: both, want: "ordinary Pods are completed in another way than by our plugin",
			code: "completion-unwanted",
		},
		"LimitsAndCompletion": {
			flags: []string{"--limit-secret-references"}, objects: both, want: "ordinary Pods are completed in another way than by our plugin",
			code: "completion-unwanted",
		},
		"Unknown": {err: errors.New("boom"), want: "read ValidatingAdmissionPolicyBinding sa-controller-manager-pods: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(tc.objects...)
				if tc.err != nil {
					client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
				}
				registry := metrics.NewKubeRegistry()
				m := &Manager{Host: Host{
					Options: parse(t, append(tc.flags, "--webhook-registration=url")...), Clients: Clients{Client: client},
					Registry: registry,
				}}
				var p Part
				testutil.Must(t, m.buildPodPolicy(&p))
				if detail, err := p.probe()(); detail != "not checked yet" || err != nil {
					t.Errorf("at first: %q, %v", detail, err)
				}
				ctx, stop := context.WithCancel(t.Context())
				go func() { _ = p.Run(ctx) }()
				synctest.Wait()
				if detail, err := p.probe()(); err != nil || (detail == "") != (tc.want == "") || !strings.Contains(detail, tc.want) {
					t.Errorf("got %q, %v, want %q", detail, err, tc.want)
				}
				var series []string
				if tc.code != "" {
					series = []string{`sacm_pod_policy_findings{code="` + tc.code + `"} 1`}
				}
				testutil.Check(t, "series", series, testutil.Series(registry, "sacm_pod_policy_findings"), cmpopts.EquateEmpty())
				stop()
			})
		})
	}
	var none Part
	testutil.Must(t, (&Manager{Host: Host{Options: parse(t)}}).buildPodPolicy(&none))
	if none.Run != nil || none.Findings != nil {
		t.Error("without a registration there is a check")
	}
}
