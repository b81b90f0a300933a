// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/traffic"
)

const plugin = "ServiceAccount"

// TestURLOnTwoHosts: a loopback URL does not bind while a second host has a live identity Lease, and binds
// once that is gone.
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

// TestHostThatJoins adds a kube-apiserver to a cluster whose webhook is bound by a loopback URL. It stays
// bound, Pods are refused on the other host, and readiness, metric and doctor say so.
func TestHostThatJoins(t *testing.T) {
	await.Long(t)
	t.Parallel()
	first := start(t, plugin)
	m := first.manage(t, currentBinary(t))
	m.awaitReady(t)
	first.awaitBound(t)
	load := startTraffic(t, first.client)
	second := first.join(t, "cp-2")

	m.awaitReadyz(t, "cp-2")
	if _, err := second.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), traffic.Pod(), metav1.CreateOptions{}); err == nil ||
		traffic.Unanswered(traffic.Call{Err: err}) {
		t.Errorf("create a Pod beside no process of ours: %v, want that it is refused", err)
	}
	if n, err := m.metric(limited(t), "sacm_webhook_url_hosts"); err != nil || n != 2 {
		t.Errorf("%v hosts (%v), want 2", n, err)
	}
	if found := doctor(t, first); !strings.Contains(found, "they run on several") || !strings.Contains(found, "cp-2") {
		t.Errorf("doctor does not find cp-2:\n%s", found)
	}
	load.Unharmed(t)
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

// doctor is what the command prints, whatever it finds besides.
func doctor(t *testing.T, c *cluster) string {
	t.Helper()
	output, err := exec.CommandContext(limited(t), currentBinary(t).Path, "doctor", "--kubeconfig="+c.Kubeconfig(),
		"--account=default/default", "--only=webhook").CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(output)
}
