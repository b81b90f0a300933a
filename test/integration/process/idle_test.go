// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

// TestIdleManagerRenewsItsLeaseOnly runs all controllers and the webhook, and wants only watches and
// renewals of the lease while nothing changes.
func TestIdleManagerRenewsItsLeaseOnly(t *testing.T) {
	await.Long(t)
	c := testcluster.New(t, devcluster.Options{}) // the webhook stays registered
	port, err := devcluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	proxy := c.Proxy(t)
	m := c.ManageThrough(t, proxy, "--token-secrets=auto", "--leader-elect=true", "--leader-elect-retry-period=200ms",
		"--webhook-port="+strconv.Itoa(port), "--webhook-registration=url")
	m.ExpectErrors = false
	c.AwaitFilled(t, "default", c.AwaitAutoSecret(t, "default", "default").Name)
	m.AwaitMetric(t, "sacm_webhook_missed_scan_timestamp_seconds", nil, 1) // seconds after it is registered
	m.WaitIdle(t)

	renewals := faultproxy.On("update", "leases")
	others := faultproxy.Match(func(r faultproxy.Request) bool { return r.Verb != "watch" && r.Resource != "leases" })
	// seen returns the other requests until the lease has been renewed that many more times.
	seen := func(times int) []faultproxy.Request {
		before, enough := len(proxy.Requests(others)), len(proxy.Requests(renewals))+times
		testcluster.AwaitRequests(t, proxy, renewals, func(all []faultproxy.Request) bool { return len(all) >= enough })
		return proxy.Requests(others)[before:]
	}
	testcluster.Poll(t, "await that it settles", func() error {
		if all := seen(15); len(all) > 0 {
			return fmt.Errorf("%v", all)
		}
		return nil
	})
	began := time.Now()
	for _, request := range seen(50) {
		t.Errorf("while nothing changes: %v", request)
	}
	t.Logf("%v with %d watches and 50 renewals", time.Since(began).Round(time.Millisecond), len(proxy.Requests(func(r faultproxy.Request) bool {
		return r.Verb == "watch" && r.Open
	})))
}
