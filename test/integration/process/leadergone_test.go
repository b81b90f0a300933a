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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

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
			secret := testcluster.TokenSecret(namespace, fmt.Sprintf("mine-%d", i), account)
			if _, err := c.API.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
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
	const total = 100
	fills, release := faultproxy.On("patch", "secrets").In(namespace), make(chan struct{})
	later := func(r faultproxy.Request) bool { return fills(r) && !firstTenth.MatchString(r.Name) }
	hold := &faultproxy.Rule{Match: later, Fault: faultproxy.Hold(release, faultproxy.Forward)}
	proxy.Use(hold)
	created := fillMany(t, c, namespace, account.Name, total)
	// The proxy sees the renewals of the lease too, so this condition is checked repeatedly.
	testcluster.AwaitRequests(t, proxy, all, func([]faultproxy.Request) bool { return hold.Hits() == syncs })
	testutil.Must(t, first.Pause())
	t.Cleanup(func() { _ = first.Resume() })
	created()
	second.ExpectLog(t, testcluster.LeadsMessage)
	c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(total))
	before := proxy.Requests(changesObjects)
	close(release)
	testcluster.AwaitRequests(t, proxy, fills, allOver)
	testutil.Must(t, first.Resume())
	first.ExpectLog(t, "Stopped controllers, waiting to become the leader again")
	c.ExpectAccepted(t, c.AwaitFilled(t, namespace, "mine-99"), account)
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
var firstTenth = regexp.MustCompile(`^mine-[0-9]$`)

func allOver(requests []faultproxy.Request) bool {
	return !slices.ContainsFunc(requests, func(r faultproxy.Request) bool { return r.Open })
}

func all(faultproxy.Request) bool { return true }
