// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"sa-controller-manager/test/balancer"
	"sa-controller-manager/test/devcluster"
)

// TestRollingReplicas ends the leading one of two replicas under load. They are reached
// by one address, as behind a Service, whose balancer learns a moment late that one of
// them is not ready any more. The drain delay is for that moment, so nobody notices.
func TestRollingReplicas(t *testing.T) {
	c := controlPlane(t)
	port := strconv.Itoa(freePort(t))
	flags := func(bind string) []string {
		return []string{
			"--webhook-registration=url", "--webhook-url-host=127.0.0.2", "--webhook-port=" + port, "--webhook-bind-address=" + bind,
			"--leader-elect=true", "--leader-elect-resource-name=webhook-rolling", "--leader-elect-retry-period=1s",
			"--webhook-drain-delay=2s",
		}
	}
	b, err := balancer.Start(net.JoinHostPort("127.0.0.2", port),
		[]string{net.JoinHostPort("127.0.0.3", port), net.JoinHostPort("127.0.0.4", port)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	first := c.start(t, flags("127.0.0.3")...)
	first.awaitReady(t)
	c.awaitBound(t)
	second := c.start(t, flags("127.0.0.4")...)
	second.awaitReady(t)
	poll(t, "await that the balancer knows both replicas", func(context.Context) error {
		if ready := b.Ready(); len(ready) != 2 {
			return fmt.Errorf("it knows of %v", ready)
		}
		return nil
	})

	calls := func() float64 {
		return first.metric(t, "sacm_webhook_requests_total", devcluster.Labels{"path": "mutate"})
	}
	before := calls()
	load := c.traffic(t, c.namespace(t))
	load.Lasts(t, time.Second)
	if calls() == before {
		t.Error("the first replica is not called, so its end shows nothing")
	}
	first.stop(t)
	second.awaitRegistration(t, "registered")
	load.Lasts(t, time.Second)
	load.Unharmed(t)
}
