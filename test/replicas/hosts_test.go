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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/traffic"
)

const plugin = "ServiceAccount"

// TestTakeoverOfTwoHosts takes two kube-apiservers on one etcd over, one after the other,
// while clients create Pods through both. Nothing binds before each has its replica. It is
// not parallel: calls time out if the machine has more to do.
func TestTakeoverOfTwoHosts(t *testing.T) {
	await.Long(t)
	first := start(t) // with kube-apiserver's own plugin
	second := first.join(t, "cp-2")
	first.awaitIdentities(t, 2)
	binary := currentBinary(t)
	loads := []*traffic.Traffic{startTraffic(t, first.client), startTraffic(t, second.client)}

	m1 := first.manage(t, binary)
	m1.awaitReadyz(t, "no heartbeat from cp-2")
	lasts(t, 5*time.Second)
	if bound, err := first.bound(t.Context()); err != nil || bound {
		t.Fatalf("the webhook is bound %t (%v) before the second host has a replica", bound, err)
	}
	m2 := second.manage(t, binary)
	begun := time.Now()
	first.awaitBound(t)
	t.Logf("bound %s after the start of the last replica", time.Since(begun).Round(time.Millisecond))
	m1.awaitReady(t)
	m2.awaitReady(t)

	// One ends in order and takes its Lease back, the other one does not.
	first.restart(t, first.StopAPIServer)
	second.restart(t, second.KillAPIServer)
	m1.awaitReady(t)
	m2.awaitReady(t)
	for _, tr := range loads {
		tr.Unharmed(t, traffic.Unanswered)
	}
	for name, m := range map[string]*manager{"first": m1, "second": m2} {
		if calls, err := m.metric(limited(t), "sacm_webhook_requests_total"); err != nil || calls < 40 {
			t.Errorf("the replica on the %s host was called %v times, %v", name, calls, err)
		}
	}
	m2.stop(t)
	m1.stop(t)
}

// TestHostThatJoins adds a kube-apiserver to a cluster whose webhook is bound. It stays
// bound, Pods are refused on the host without a replica, and logs, Events and metrics say so.
func TestHostThatJoins(t *testing.T) {
	await.Long(t)
	t.Parallel()
	first := start(t, plugin)
	m1 := first.manage(t, currentBinary(t))
	m1.awaitReady(t)
	first.awaitBound(t)
	load := startTraffic(t, first.client)
	second := first.join(t, "cp-2")

	m1.awaitReadyz(t, "refuses Pods on cp-2")
	m1.awaitReady(t) // that is no reason to be taken for dead
	if _, err := second.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), traffic.Pod(), metav1.CreateOptions{}); err == nil ||
		traffic.Unanswered(traffic.Call{Err: err}) {
		t.Errorf("create a Pod beside no replica: %v, want that it is refused", err)
	}
	if n, err := m1.metric(limited(t), "sacm_webhook_hosts_without_replica"); err != nil || n != 1 {
		t.Errorf("%v hosts without replica (%v), want 1", n, err)
	}
	if found := doctor(t, first); !strings.Contains(found, "cp-2") {
		t.Errorf("doctor does not find cp-2:\n%s", found)
	}
	if !testing.Short() { // it has its grace of a minute
		first.awaitEvent(t, "WebhookHostWithoutReplica", "cp-2")
	}

	m2 := second.manage(t, currentBinary(t))
	m2.awaitReady(t)
	poll(t, "await that nobody is missing", func(ctx context.Context) error {
		n, err := m1.metric(ctx, "sacm_webhook_hosts_without_replica")
		if err == nil && n != 0 {
			err = fmt.Errorf("%v hosts are without replica", n)
		}
		return err
	})
	pod, err := second.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), traffic.Pod(), metav1.CreateOptions{})
	if err = errors.Join(err, traffic.Complete(pod)); err != nil {
		t.Errorf("create a Pod on the second host: %v", err)
	}
	if found := doctor(t, first); strings.Contains(found, "cp-2") {
		t.Errorf("doctor still finds cp-2:\n%s", found)
	}
	load.Unharmed(t)
	m2.stop(t)
	m1.stop(t)
}

// restart takes kube-apiserver's own plugin out.
func (c *cluster) restart(t *testing.T, stop func() error) {
	t.Helper()
	c.SetAPIServerFlag("disable-admission-plugins", plugin)
	if err := errors.Join(stop(), c.StartAPIServer(t.Context())); err != nil {
		t.Fatal(err)
	}
	lasts(t, 3*time.Second)
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

func (c *cluster) awaitEvent(t *testing.T, reason, text string) {
	t.Helper()
	poll(t, "await an Event "+reason, func(ctx context.Context) error {
		events, err := c.client.EventsV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.Reason == reason && strings.Contains(event.Note, text) {
				return nil
			}
		}
		return errors.New("there is none")
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
