// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"

	"sa-controller-manager/test/integration/faultproxy"
)

// changesObjects selects the requests that change objects, without those of the election and the
// reviews that ask something.
func changesObjects(r faultproxy.Request) bool {
	switch r.Resource {
	case "leases", "events", "tokenreviews", "selfsubjectaccessreviews", "subjectaccessreviews":
		return false
	}
	return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch"
}

// TestPausedLeaderWritesNothing has the leader stand still in the middle of its work, as
// on a machine that is suspended, until another one leads. When it goes on it must not
// finish what it had begun: no write begins after the renew deadline.
func TestPausedLeaderWritesNothing(t *testing.T) {
	c := sharedControlPlane(t)
	flags := []string{
		"--token-secrets=manual", "--leader-elect=true", "--leader-elect-resource-name=paused",
		"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms",
		"--concurrent-serviceaccount-token-syncs=2",
	}
	proxy := c.proxy(t)
	first := c.manageThrough(t, proxy, flags...)
	if err := first.AwaitLog(limited(t), leads); err != nil {
		t.Fatal(err)
	}
	second := c.manage(t, flags...)
	namespace := c.namespace(t)
	account := c.createAccount(t, namespace, "someone")
	const total = 300
	created := make(chan struct{})
	go func() {
		defer close(created)
		for i := range total {
			c.createStubbornly(t, tokenSecret(namespace, fmt.Sprintf("mine-%d", i), "someone"))
		}
	}()
	c.awaitSecrets(t, namespace, atLeastFilled(total/10))
	if err := first.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Resume() })
	<-created
	if err := second.AwaitLog(limited(t), leads); err != nil {
		t.Fatal(err)
	}
	before := len(proxy.Requests(changesObjects))
	if err := first.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := first.AwaitLog(limited(t), "Controllers have stopped, waiting to lead again"); err != nil {
		t.Fatal(err)
	}
	c.awaitSecrets(t, namespace, atLeastFilled(total))
	c.accepted(t, c.awaitFilled(t, namespace, "mine-299"), account)
	if before == 0 {
		t.Error("the first one has written nothing before: nothing is proved")
	}
	for _, late := range proxy.Requests(changesObjects)[before:] {
		t.Errorf("after the renew deadline: %v", late)
	}
}
