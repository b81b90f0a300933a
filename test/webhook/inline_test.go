// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/devcluster"
)

// TestFollower shows what a replica does that does not lead: its controllers rest, so
// all that is created is created by its webhook.
func TestFollower(t *testing.T) {
	c := controlPlane(t)
	const lease = "webhook-follower"
	c.holdLease(t, lease)
	files := newCertificateFiles(t)
	m := c.start(t, files.flags("--leader-elect=true", "--leader-elect-resource-name="+lease)...)
	m.awaitReady(t)
	c.ensureDefault(t)
	c.registerByHand(t, m, files.pem)
	namespace := c.namespace(t)

	t.Run("DryRunCreatesNothing", func(t *testing.T) {
		_, err := c.try(t.Context(), namespace, newPod())
		refused(t, err, `error looking up service account `+namespace+`/default: serviceaccount "default" not found`)
		accounts, err := c.client.CoreV1().ServiceAccounts(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(accounts.Items) > 0 {
			t.Errorf("there are accounts: %v", accounts.Items)
		}
	})
	t.Run("PodCreatesItsAccount", func(t *testing.T) {
		complete(t, c.create(t, namespace, newPod()), "default")
		c.awaitAccount(t, namespace, "default")
		if got := m.metric(t, "sacm_admission_account_lookups_total", devcluster.Labels{"source": "created"}); got != 1 {
			t.Errorf("%v accounts were created by the webhook, want 1", got)
		}
	})
}

// TestAuditSaysWhoWasCreated asks a follower twice about the same namespace.
func TestAuditSaysWhoWasCreated(t *testing.T) {
	c := controlPlane(t)
	const lease = "webhook-audit"
	c.holdLease(t, lease)
	m := c.start(t, "--webhook-registration=none", "--leader-elect=true", "--leader-elect-resource-name="+lease)
	m.awaitReady(t)
	namespace := c.namespace(t)
	question := review(t, namespace, newPod())
	for i, want := range []string{namespace + "/default", ""} {
		got := m.answer(t, "/mutate?timeout=10s", question)
		if !got.Allowed || got.AuditAnnotations["created-service-account"] != want {
			t.Errorf("call %d: got %+v, want the audit annotation %q", i, got, want)
		}
	}
}

// ensureDefault creates the account that awaitBound tries Pods of.
func (c *cluster) ensureDefault(t *testing.T) {
	t.Helper()
	_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create the account \"default\": %v", err)
	}
}

// holdLease keeps a Lease from everybody else for an hour.
func (c *cluster) holdLease(t *testing.T, name string) {
	t.Helper()
	now := metav1.NewMicroTime(time.Now())
	_, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("somebody"), LeaseDurationSeconds: new(int32(3600)), AcquireTime: &now, RenewTime: &now,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create lease %s: %v", name, err)
	}
}
