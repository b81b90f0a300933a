// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

// TestLeaderElection covers a hand-over from one replica to another, which watches the Lease: it
// reads it next after 20 s.
func TestLeaderElection(t *testing.T) {
	c := testcluster.Shared(t)
	const handOver = 3 * time.Second
	flags := []string{
		"--token-secrets=auto", "--leader-elect=true", "--leader-elect-resource-name=two-replicas",
		"--leader-elect-retry-period=20s", "--leader-elect-renew-deadline=60s", "--leader-elect-lease-duration=90s",
	}
	first := c.Manage(t, flags...)
	first.ExpectLog(t, testcluster.LeadsMessage)
	second := c.Manage(t, flags...)
	holder := c.AwaitLease(t, "two-replicas", func(holder string) bool { return holder != "" })
	if !strings.Contains(first.Logs(), holder) {
		t.Errorf("the Lease is held by %q, which is not the first manager", holder)
	}
	namespace := c.Namespace(t)
	own := c.AwaitAutoSecret(t, namespace, "default")
	if strings.Contains(second.Logs(), testcluster.LeadsMessage) {
		t.Fatal("both managers run controllers")
	}

	begun := time.Now()
	stopped := make(chan time.Time, 1)
	go func() {
		first.Shutdown(t)
		stopped <- time.Now()
	}()
	second.ExpectLog(t, testcluster.LeadsMessage)
	await.Within(t, "the hand-over", time.Since(begun), handOver)
	<-stopped
	now := c.AwaitLease(t, "two-replicas", func(now string) bool { return now != holder && now != "" })
	if !strings.Contains(second.Logs(), now) {
		t.Errorf("the Lease is held by %q, which is not the second manager", now)
	}
	c.CreateAccount(t, namespace, "someone")
	c.ExpectAccepted(t, c.AwaitAutoSecret(t, namespace, "someone"), c.GetAccount(t, namespace, "someone"))
	if again := c.AwaitAutoSecret(t, namespace, "default"); again.UID != own.UID {
		t.Error("the second manager has replaced a Secret of the first one")
	}

	// The last manager releases the Lease too.
	second.Shutdown(t)
	c.AwaitLease(t, "two-replicas", func(now string) bool { return now == "" })
}

// TestIdleReplicas: while nothing changes, the leader renews the Lease, and the other replica sends
// nothing.
func TestIdleReplicas(t *testing.T) {
	c := testcluster.Shared(t)
	flags := []string{"--token-secrets=auto", "--leader-elect=true", "--leader-elect-resource-name=idle", "--leader-elect-retry-period=200ms"}
	leader, standby := c.Proxy(t), c.Proxy(t)
	c.ManageThrough(t, leader, flags...).ExpectLog(t, testcluster.LeadsMessage)
	c.ManageThrough(t, standby, flags...)
	c.AwaitAutoSecret(t, c.Namespace(t), "default")
	renewals := faultproxy.On("update", "leases")
	unneeded := func(proxy *faultproxy.Proxy) []faultproxy.Request {
		return proxy.Requests(func(r faultproxy.Request) bool {
			return r.Verb != "watch" && (proxy == standby || r.Resource != "leases")
		})
	}
	during := func(times int) []faultproxy.Request {
		before, waiting, enough := len(unneeded(leader)), len(unneeded(standby)), len(leader.Requests(renewals))+times
		testcluster.AwaitRequests(t, leader, renewals, func(all []faultproxy.Request) bool { return len(all) >= enough })
		return slices.Concat(unneeded(leader)[before:], unneeded(standby)[waiting:])
	}
	testcluster.Poll(t, "await that both settle", func() error {
		if all := during(15); len(all) > 0 {
			return fmt.Errorf("%v", all)
		}
		return nil
	})
	for _, request := range during(50) {
		t.Errorf("while nothing changes: %v", request)
	}
}
