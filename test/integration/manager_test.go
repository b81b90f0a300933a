// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
)

// drainLimit is how long the product may take from SIGTERM to its end.
const drainLimit = 10 * time.Second

// manager is a running sa-controller-manager.
type manager struct {
	*devcluster.Manager

	cluster *controlPlane
	name    string
	faulty  bool // errors in the log are expected
	early   int  // so much of the log is from before kube-apiserver was there
	stopped bool
}

// manage starts the binary, awaits that it is ready and stops it when the test
// ends.
func (c *controlPlane) manage(t *testing.T, flags ...string) *manager {
	t.Helper()
	m := c.start(t, flags...)
	m.awaitReady(t)
	return m
}

// start does not wait.
func (c *controlPlane) start(t *testing.T, flags ...string) *manager {
	t.Helper()
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	// At this level client-go logs whatever it sends and receives.
	running, err := binary.StartManager(c.Cluster, append([]string{"-v=10"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c.adopt(t, running)
}

// adopt stops a running manager when the test ends.
func (c *controlPlane) adopt(t *testing.T, running *devcluster.Manager) *manager {
	t.Helper()
	m := &manager{Manager: running, cluster: c, name: t.Name()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last lines of the manager's log:\n%s", m.quietTail())
		}
		m.stop(t)
	})
	return m
}

func (m *manager) awaitReady(t *testing.T) {
	t.Helper()
	if err := m.Ready(limited(t)); err != nil {
		t.Fatalf("await the manager: %v", err)
	}
}

// stop sends SIGTERM and holds the manager to what it must never do. It does
// nothing if the manager was stopped or killed before.
func (m *manager) stop(t *testing.T) {
	t.Helper()
	if m.stopped {
		return
	}
	m.stopped = true
	m.keepMetrics(t)
	m.cluster.hangUpManagers()
	exit, err := m.Stop()
	if err != nil {
		t.Errorf("stop the manager: %v", err)
	}
	if exit.Code != 0 {
		t.Errorf("the manager ended with code %d, want 0", exit.Code)
	}
	await.Within(t, "the manager's end", exit.Took, drainLimit)
	m.examineLog(t)
}

// ended awaits that the manager ends by itself with the given exit code.
func (m *manager) ended(t *testing.T, code int) {
	t.Helper()
	m.stopped = true
	select {
	case <-m.Done():
	case <-limited(t).Done():
		t.Error("the manager does not end")
	}
	exit, err := m.Stop()
	if err != nil {
		t.Errorf("end the manager: %v", err)
	}
	if exit.Code != code {
		t.Errorf("the manager ended with code %d, want %d", exit.Code, code)
	}
	m.examineLog(t)
}

// kill ends the manager as a power cut would.
func (m *manager) kill(t *testing.T) {
	t.Helper()
	m.stopped = true
	m.keepMetrics(t)
	if _, err := m.Kill(); err != nil {
		t.Errorf("kill the manager: %v", err)
	}
	m.examineLog(t)
}

func (m *manager) keepMetrics(t *testing.T) {
	t.Helper()
	select {
	case <-m.Done():
		return
	default:
	}
	// The context of a test has ended when its clean-up runs.
	metrics, err := m.Get(cleanupContext(t), "/metrics")
	if err != nil {
		t.Logf("the manager's last metrics are lost: %v", err)
	}
	shared.canary.add("metrics of "+m.name, metrics)
}

// chatter is what client-go prints at high log levels.
var chatter = regexp.MustCompile(`(?m)^(I\d{4} .* (request|round_trippers|reflector|type|shared_informer|helper|envvar|view|health|flags)\.go:.*|[^EFIW].*|[EFIW]\D.*|)\n`)

// quietTail is the end of the log without that.
func (m *manager) quietTail() string {
	lines := chatter.ReplaceAllString(m.Logs()+"\n", "")
	const longest = 6000
	return lines[max(0, len(lines)-longest):]
}

func (m *manager) awaitIdle(t *testing.T) {
	t.Helper()
	if err := m.AwaitIdle(limited(t)); err != nil {
		t.Fatalf("await an idle manager: %v", err)
	}
}

// metric is a series' value now.
func (m *manager) metric(t *testing.T, name string, labels devcluster.Labels) float64 {
	t.Helper()
	metrics, err := m.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return metrics.Sum(name, labels)
}

// awaitMetric returns once a series has at least the given value.
func (m *manager) awaitMetric(t *testing.T, name string, labels devcluster.Labels, least float64) {
	t.Helper()
	ctx := limited(t)
	poll(t, "await "+name, func() error {
		metrics, err := m.Metrics(ctx)
		if err != nil {
			return err
		}
		if value := metrics.Sum(name, labels); value < least {
			return fmt.Errorf("%v is %v, want %v", labels, value, least)
		}
		return nil
	})
}

// manageThrough starts a manager that reaches kube-apiserver through a fault
// proxy. Errors in its log are nobody's fault but the proxy's.
func (c *controlPlane) manageThrough(t *testing.T, proxy *faultproxy.Proxy, flags ...string) *manager {
	t.Helper()
	m := c.start(t, append(proxy.Flags(t), flags...)...)
	m.faulty = true
	m.awaitReady(t)
	return m
}

// proxy starts a fault proxy in front of kube-apiserver.
func (c *controlPlane) proxy(t *testing.T) *faultproxy.Proxy {
	t.Helper()
	return faultproxy.ForTest(t, c.Config())
}
