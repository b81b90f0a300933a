// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
)

const plugin = "ServiceAccount"

// TestURLOnTwoHosts: a loopback URL does not bind while a second host has a live identity Lease, and binds
// once that is gone. What a host that joins later changes is decided by the same Leases: package
// registration tests it.
func TestURLOnTwoHosts(t *testing.T) {
	await.Long(t)
	t.Parallel()
	first := start(t) // with kube-apiserver's own plugin
	second := first.join(t, "cp-2")
	first.awaitIdentities(t, 2)
	m := first.manage(t, currentBinary(t))
	m.awaitReadyz(t, "they run on several: ")
	lasts(t, 5*time.Second)
	if bound, err := first.bound(t.Context()); bound || err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("the webhook is bound %t (%v) on the second host too", bound, err)
	}
	if err := errors.Join(second.StopAPIServer(), first.client.CoordinationV1().Leases(metav1.NamespaceSystem).DeleteCollection(t.Context(),
		metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: corev1.LabelHostname + "=cp-2"})); err != nil {
		t.Fatal(err)
	}
	first.awaitBound(t)
	m.awaitReady(t)
	m.stop(t)
}

// awaitIdentities waits until n kube-apiservers have told that they are there.
func (c *cluster) awaitIdentities(t *testing.T, n int) {
	t.Helper()
	poll(t, "await identity Leases", func(ctx context.Context) error {
		leases, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{
			LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver",
		})
		if err != nil {
			return err
		}
		hosts := map[string]bool{}
		for _, lease := range leases.Items {
			hosts[lease.Labels[corev1.LabelHostname]] = true
		}
		if len(hosts) != n {
			return fmt.Errorf("hosts %v, want %d", hosts, n)
		}
		return nil
	})
}
