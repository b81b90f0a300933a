// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/podpolicy/podpolicytest"
	"sa-controller-manager/internal/testutil"
)

// TestPodPolicyDetail: /readyz says what is wrong with the policies for Pods, and does not fail for it.
func TestPodPolicyDetail(t *testing.T) {
	t.Parallel()
	policy, binding := podpolicytest.Policy(), podpolicytest.Binding
	deny, completion := binding(admissionregistrationv1.Deny), podpolicytest.Objects(podpolicy.Completion)
	both := append([]runtime.Object{policy, deny}, completion...)
	for name, tc := range map[string]struct {
		flags   []string
		objects []runtime.Object
		err     error
		want    string // part of the detail, "" for none
	}{
		"Right": {objects: both},
		"Warns": {
			objects: append([]runtime.Object{policy, binding(admissionregistrationv1.Warn)}, completion...),
			want:    "its spec.validationActions is [Warn], want [Deny]",
		},
		"NoCompletion": {objects: []runtime.Object{policy, deny}, want: "finding completion-missing: the policy " +
			"sa-controller-manager-completion is missing"},
		"Secret": {flags: []string{"--pod-token=secret"}, objects: []runtime.Object{policy, deny}},
		"SecretAndCompletion": {
			flags: []string{"--pod-token=secret"}, objects: both, want: "ordinary Pods are completed in another way than by our plugin",
		},
		"LimitsAndCompletion": {
			flags: []string{"--limit-secret-references"}, objects: both, want: "ordinary Pods are completed in another way than by our plugin",
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
				m := &Manager{Host: Host{Options: parse(t, append(tc.flags, "--webhook-registration=url")...), Clients: Clients{Client: client}}}
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
