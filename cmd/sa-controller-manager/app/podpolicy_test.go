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

	"sa-controller-manager/admission/podpolicy/podpolicytest"
	"sa-controller-manager/internal/testutil"
)

// TestPodPolicyDetail: /readyz says what is wrong with the policy for Pods, and does not fail for it.
func TestPodPolicyDetail(t *testing.T) {
	t.Parallel()
	policy, binding := podpolicytest.Policy(), podpolicytest.Binding
	for name, tc := range map[string]struct {
		objects []runtime.Object
		err     error
		want    string // part of the detail, "" for none
	}{
		"Denies":  {objects: []runtime.Object{policy, binding(admissionregistrationv1.Deny)}},
		"Warns":   {objects: []runtime.Object{policy, binding(admissionregistrationv1.Warn)}, want: "has the actions [Warn] and not Deny"},
		"Unknown": {err: errors.New("boom"), want: "read ValidatingAdmissionPolicy sa-controller-manager-pods: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(tc.objects...)
				if tc.err != nil {
					client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
				}
				m := &Manager{Host: Host{Options: parse(t, "--webhook-registration=url"), Clients: Clients{Client: client}}}
				var p Part
				testutil.Must(t, m.buildPodPolicy(&p))
				if detail, err := p.Check(); detail != "not checked yet" || err != nil {
					t.Errorf("at first: %q, %v", detail, err)
				}
				ctx, stop := context.WithCancel(t.Context())
				go func() { _ = p.Run(ctx) }()
				synctest.Wait()
				if detail, err := p.Check(); err != nil || (detail == "") != (tc.want == "") || !strings.Contains(detail, tc.want) {
					t.Errorf("got %q, %v, want %q", detail, err, tc.want)
				}
				stop()
			})
		})
	}
	var none Part
	testutil.Must(t, (&Manager{Host: Host{Options: parse(t)}}).buildPodPolicy(&none))
	if none.Run != nil || none.Check != nil {
		t.Error("without a registration there is a check")
	}
}
