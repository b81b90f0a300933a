// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
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

// fillMany creates token Secrets of an account in the background, and returns once a tenth of them
// is filled. The function that it returns waits until all are created.
func fillMany(t *testing.T, c *testcluster.ControlPlane, namespace, account string, total int) (created func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range total {
			c.CreateWithRetry(t, testcluster.TokenSecret(namespace, fmt.Sprintf("mine-%d", i), account))
		}
	}()
	c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(total/10))
	return func() { <-done }
}

// syncs is how many workers fill token Secrets.
const syncs = 2

// manualLeader fills the Secrets of users, and leads by a short Lease.
func manualLeader(name string) []string {
	return append(testcluster.ShortLease(name), "--token-secrets=manual",
		"--concurrent-serviceaccount-token-syncs="+strconv.Itoa(syncs)) // so that there is a middle
}

// TestKilledLeaderIsReplaced ends the leader in the middle of its work, as a power cut
// would. The next one has to wait for the lease to run out, and does the rest.
func TestKilledLeaderIsReplaced(t *testing.T) {
	c := testcluster.Shared(t)
	flags := manualLeader("killed")
	first := c.Manage(t, flags...)
	first.ExpectLog(t, testcluster.LeadsMessage)
	second := c.Manage(t, flags...)
	namespace := c.Namespace(t)
	account := c.CreateAccount(t, namespace, "someone")
	const total = 300
	created := fillMany(t, c, namespace, account.Name, total)
	first.Crash(t)
	killed := time.Now()
	created()
	filled, _ := await.Secrets(t.Context(), c.API, namespace, testcluster.AtLeastFilled(0))
	if done := countFilled(filled); done >= total {
		t.Error("all were filled before the end: nothing is proved")
	}
	second.ExpectLog(t, testcluster.LeadsMessage)
	if took := time.Since(killed); took < time.Second {
		t.Errorf("the second manager leads after %v, before the lease of the first one has expired", took)
	}
	secrets := c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(total))
	c.ExpectAccepted(t, c.AwaitFilled(t, namespace, "mine-299"), account)
	for _, secret := range secrets {
		if keys := len(secret.Data); keys != 3 {
			t.Errorf("secret %q has %d keys, want 3", secret.Name, keys)
		}
	}
}

func countFilled(secrets []*corev1.Secret) int {
	filled := 0
	for _, secret := range secrets {
		if testcluster.HasToken(secret) == nil {
			filled++
		}
	}
	return filled
}

// TestPausedLeaderWritesNothing pauses the leader during its work, like a suspended machine, until
// another replica leads. When it continues, no write may begin after the renew deadline. Each of its
// workers waits for an answer when it is paused, so that a later write cannot have been sent
// before. Writes that were sent before are refused by their precondition.
func TestPausedLeaderWritesNothing(t *testing.T) {
	c := testcluster.Shared(t)
	flags := manualLeader("paused")
	proxy := c.Proxy(t)
	first := c.ManageThrough(t, proxy, flags...)
	first.ExpectLog(t, testcluster.LeadsMessage)
	second := c.Manage(t, flags...)
	namespace := c.Namespace(t)
	account := c.CreateAccount(t, namespace, "someone")
	const total = 300
	fills, release := faultproxy.On("patch", "secrets").In(namespace), make(chan struct{})
	later := func(r faultproxy.Request) bool { return fills(r) && !firstTenth.MatchString(r.Name) }
	hold := &faultproxy.Rule{Match: later, Fault: faultproxy.Hold(release, faultproxy.Forward)}
	proxy.Use(hold)
	created := fillMany(t, c, namespace, account.Name, total)
	// The proxy sees the renewals of the lease too, so this condition is checked repeatedly.
	testcluster.AwaitRequests(t, proxy, all, func([]faultproxy.Request) bool { return hold.Hits() == syncs })
	if err := first.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Resume() })
	created()
	second.ExpectLog(t, testcluster.LeadsMessage)
	c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(total))
	before := proxy.Requests(changesObjects)
	close(release)
	testcluster.AwaitRequests(t, proxy, fills, allOver)
	if err := first.Resume(); err != nil {
		t.Fatal(err)
	}
	first.ExpectLog(t, "Stopped controllers, waiting to become the leader again")
	c.ExpectAccepted(t, c.AwaitFilled(t, namespace, "mine-299"), account)
	for _, late := range proxy.Requests(changesObjects)[len(before):] {
		t.Errorf("after the renew deadline: %v", late)
	}
	for i, then := range proxy.Requests(changesObjects)[:len(before)] {
		if before[i].Open && then.Served != http.StatusConflict {
			t.Errorf("what was on its way is not refused: %v", then)
		}
	}
}

// firstTenth are the Secrets whose filling fillMany awaits.
var firstTenth = regexp.MustCompile(`^mine-[12]?[0-9]$`)

func allOver(requests []faultproxy.Request) bool {
	return !slices.ContainsFunc(requests, func(r faultproxy.Request) bool { return r.Open })
}

func all(faultproxy.Request) bool { return true }
