// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/test/devcluster"
)

// TestDrain ends the only replica under load. It goes on answering for the drain delay;
// after that a caller sees that nobody listens any more, and never a cut connection.
func TestDrain(t *testing.T) {
	c := controlPlane(t)
	const delay = 2 * time.Second
	m := c.manage(t, "--webhook-drain-delay="+delay.String())
	traffic := c.traffic(t, c.namespace(t))
	traffic.lasts(t, time.Second)
	told := time.Now()
	m.stop(t)
	traffic.lasts(t, 500*time.Millisecond)
	served, refused := 0, 0
	for _, one := range traffic.finish() {
		switch {
		case one.err == nil:
			served++
		case one.ended.Before(told.Add(delay)):
			t.Errorf("a call was refused %v after SIGTERM, want none before %v: %v", one.ended.Sub(told), delay, one.err)
		case nobodyListened(one.err):
			refused++
		default:
			t.Errorf("a connection was cut: %v", one.err)
		}
	}
	// Both, or the test has shown nothing.
	if served == 0 || refused == 0 {
		t.Errorf("%d calls were served and %d refused, want some of either", served, refused)
	}
}

// nobodyListened reports whether the caller came no further than connect(2), so that no
// byte of its review was sent. The kernel refuses a connection when the listener is gone,
// and resets the one that it had queued for the listener when that is closed.
func nobodyListened(err error) bool {
	return strings.Contains(err.Error(), "connect: connection refused") ||
		strings.Contains(err.Error(), "connect: connection reset by peer")
}

// TestRollingReplicas ends the leading one of two replicas under load. They are reached
// by one address, as behind a Service, whose balancer learns a moment late that one of
// them is not ready any more. The drain delay is for that moment, so nobody notices.
func TestRollingReplicas(t *testing.T) {
	c := controlPlane(t)
	port := freePort(t)
	flags := func(bind string) []string {
		return []string{
			"--webhook-registration=url", "--webhook-url-host=127.0.0.2", "--webhook-port=" + strconv.Itoa(port), "--webhook-bind-address=" + bind,
			"--leader-elect=true", "--leader-elect-resource-name=webhook-rolling", "--leader-elect-retry-period=1s",
			"--webhook-drain-delay=2s",
		}
	}
	balancer := balance(t, at("127.0.0.2", port), at("127.0.0.3", port), at("127.0.0.4", port))
	first := c.start(t, flags("127.0.0.3")...)
	first.awaitReady(t)
	c.awaitBound(t)
	second := c.start(t, flags("127.0.0.4")...)
	second.awaitReady(t)
	awaitBalanced(t, balancer, 2)

	calls := func() float64 {
		return first.metric(t, "sacm_webhook_requests_total", devcluster.Labels{"path": "mutate"})
	}
	before := calls()
	traffic := c.traffic(t, c.namespace(t))
	traffic.lasts(t, time.Second)
	if calls() == before {
		t.Error("the first one is not called, so its end shows nothing")
	}
	first.stop(t)
	second.awaitRegistration(t, "registered")
	traffic.lasts(t, time.Second)
	traffic.unharmed(t)
}
