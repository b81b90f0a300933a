// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
)

// TestFollower asks a replica that does not lead. Its controllers rest, so its webhook creates
// the missing account, once, and the audit log says so.
func TestFollower(t *testing.T) {
	c := controlPlane(t)
	const lease = "webhook-follower"
	now := metav1.NewMicroTime(time.Now())
	_, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: lease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("another replica"), LeaseDurationSeconds: new(int32(3600)), AcquireTime: &now, RenewTime: &now,
		},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
	m := c.start(t, "--webhook-registration=none", "--leader-elect=true", "--leader-elect-resource-name="+lease)
	m.awaitReady(t)
	namespace := c.namespace(t)
	for _, tc := range []struct {
		name            string
		dryRun, allowed bool
		created         string
	}{
		{name: "a dry run leaves nothing behind", dryRun: true},
		{name: "the Pod creates its account", allowed: true, created: namespace + "/default"},
		{name: "the account exists", allowed: true},
	} {
		got := m.answer(t, "/mutate?timeout=3s", review(t, namespace, newPod(), tc.dryRun))
		if got.Allowed != tc.allowed || got.AuditAnnotations["created-service-account"] != tc.created {
			t.Errorf("%s: got %+v, want allowed %t and the audit annotation %q", tc.name, got, tc.allowed, tc.created)
		}
		accounts, err := c.client.CoreV1().ServiceAccounts(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(accounts.Items) > 0 != tc.allowed {
			t.Errorf("%s: the accounts are %v (error %v)", tc.name, accounts.Items, err)
		}
	}
}
