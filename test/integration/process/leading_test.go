// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TestLeaseIsLost covers a leader that cannot renew its Lease: it stops its controllers before the
// second manager starts its own, and leads again when the second one stops.
func TestLeaseIsLost(t *testing.T) {
	c := testcluster.Shared(t)
	flags := append(testcluster.ShortLease("lost"), "--token-secrets=auto")
	proxy := c.Proxy(t)
	first := c.ManageThrough(t, proxy, flags...)
	first.ExpectLog(t, testcluster.LeadsMessage)
	second := c.Manage(t, flags...)
	namespace := c.Namespace(t)
	c.AwaitAutoSecret(t, namespace, "default")

	// It has a write under way when it loses the Lease.
	references := faultproxy.On("patch", "serviceaccounts").In(namespace)
	proxy.Use(
		&faultproxy.Rule{
			Match: faultproxy.On("", "leases"), Fault: faultproxy.Answer(http.StatusInternalServerError, metav1.StatusReasonInternalError),
		},
		&faultproxy.Rule{Match: references, Fault: faultproxy.Hold(nil, faultproxy.Forward)},
	)
	account := c.CreateAccount(t, namespace, "someone")
	second.ExpectLog(t, testcluster.LeadsMessage)
	testcluster.ExpectContains(t, first.Logs(), "Stopped controllers, waiting to become the leader again")
	c.ExpectAccepted(t, c.AwaitAutoSecret(t, namespace, "someone"), account)
	testcluster.Poll(t, "await that no other Secret of the account is left", func() error {
		if left := len(c.AutoSecrets(t, namespace, "someone")); left != 1 {
			return fmt.Errorf("there are %d, want 1", left)
		}
		return nil
	})

	proxy.Use()
	works := strings.Count(first.Logs(), testcluster.LeadsMessage)
	second.Shutdown(t)
	testcluster.Poll(t, "await that the first manager leads again", func() error {
		if now := strings.Count(first.Logs(), testcluster.LeadsMessage); now == works {
			return errors.New("no controller has started again")
		}
		return nil
	})
	another := c.CreateAccount(t, namespace, "another")
	c.ExpectAccepted(t, c.AwaitAutoSecret(t, namespace, "another"), another)
}

// TestSIGTERMUnderLoad ends a manager in its work: what is under way is finished, the process
// ends in time, and the next one does the rest.
func TestSIGTERMUnderLoad(t *testing.T) {
	c := testcluster.Shared(t)
	first := c.Manage(t, "--token-secrets=auto")
	namespace := c.Namespace(t)
	account := c.CreateAccount(t, namespace, "someone")
	const total = 150
	created := fillMany(t, c, namespace, account.Name, total)
	first.Shutdown(t)
	created()
	secrets := c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(0))
	filled := 0
	for _, secret := range secrets {
		if keys := len(secret.Data); keys != 0 && keys != 3 {
			t.Errorf("secret %q is filled by half: %d keys", secret.Name, keys)
		}
		if len(secret.Data) == 3 {
			filled++
		}
	}
	if filled >= total {
		t.Errorf("all were filled before the end: nothing is proved")
	}
	c.Manage(t, "--token-secrets=auto")
	c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(total+2))
	c.ExpectAccepted(t, c.AwaitFilled(t, namespace, "mine-149"), account)
}
