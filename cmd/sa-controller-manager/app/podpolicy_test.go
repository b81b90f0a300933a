// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/admission/podpolicy/podpolicytest"
	"sa-controller-manager/internal/testutil"
)

// TestPodPolicyDetail: /readyz says what is wrong with the policy for Pods, and does not fail for it.
func TestPodPolicyDetail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(podpolicytest.Policy(), podpolicytest.Binding(admissionregistrationv1.Warn))
		m := &Manager{Host: Host{Options: parse(t, "--webhook-registration=url"), Clients: Clients{Client: client}}}
		var p Part
		testutil.Must(t, m.buildPodPolicy(&p))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = p.Run(ctx) }()
		synctest.Wait()
		if detail, err := p.Check(); err != nil || !strings.Contains(detail, "has the actions [Warn] and not Deny") {
			t.Errorf("got %q, %v", detail, err)
		}
	})
	var none Part
	testutil.Must(t, (&Manager{Host: Host{Options: parse(t)}}).buildPodPolicy(&none))
	if none.Run != nil || none.Check != nil {
		t.Error("without a registration there is a check")
	}
}
