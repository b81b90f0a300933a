// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// drainLimit bounds the time from SIGTERM to the exit of the manager.
const drainLimit = 10 * time.Second

// Manager is a running sa-controller-manager.
type Manager struct {
	*devcluster.Manager

	cluster      *ControlPlane
	name         string
	ExpectErrors bool // errors in the log are expected
	stopped      bool
}

// Manage starts a manager, waits until it is ready and stops it when the test ends.
func (c *ControlPlane) Manage(t *testing.T, flags ...string) *Manager {
	t.Helper()
	m := c.StartManager(t, flags...)
	m.AwaitReady(t)
	return m
}

// StartManager starts a manager without waiting and stops it when the test ends.
func (c *ControlPlane) StartManager(t *testing.T, flags ...string) *Manager {
	t.Helper()
	binary := Binary(t)
	// At this level client-go logs whatever it sends and receives.
	running := testutil.Get(binary.StartManager(c.Cluster, append([]string{"-v=10"}, flags...)...))(t)
	m := &Manager{Manager: running, cluster: c, name: t.Name()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last lines of the manager's log:\n%s", m.logWithoutNoise())
		}
		m.Shutdown(t)
	})
	return m
}

// AwaitReady waits until the manager is ready.
func (m *Manager) AwaitReady(t *testing.T) {
	t.Helper()
	testutil.Must(t, m.Ready(Context(t)))
}

// Shutdown sends SIGTERM and checks exit code, duration and log. It is a no-op if the manager has
// ended before.
func (m *Manager) Shutdown(t *testing.T) {
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
	testutil.Check(t, "exit code of the manager", 0, exit.Code)
	await.Within(t, "the manager's end", exit.Took, drainLimit)
	m.examineLog(t)
}

func (m *Manager) keepMetrics(t *testing.T) {
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
	Leaks.Add("metrics of "+m.name, metrics)
}

// chatter matches what client-go logs at high levels.
var chatter = regexp.MustCompile(`(?m)^(I\d{4} .* (request|round_trippers|reflector|type|shared_informer|` +
	`helper|envvar|view|health|flags)\.go:.*|[^EFIW].*|[EFIW]\D.*|)\n`)

// logWithoutNoise returns the end of the log without chatter.
func (m *Manager) logWithoutNoise() string {
	lines := chatter.ReplaceAllString(m.Logs()+"\n", "")
	const longest = 6000
	return lines[max(0, len(lines)-longest):]
}

// WaitIdle waits until no queue of the manager holds a key.
func (m *Manager) WaitIdle(t *testing.T) {
	t.Helper()
	testutil.Must(t, m.AwaitIdle(Context(t)))
}

// ExpectLog waits until the manager has logged text.
func (m *Manager) ExpectLog(t *testing.T, text string) {
	t.Helper()
	testutil.Must(t, m.AwaitLog(Context(t), text))
}

// Metric returns the present sum of a metric over the matching series.
func (m *Manager) Metric(t *testing.T, name string, labels devcluster.Labels) float64 {
	t.Helper()
	metrics := testutil.Get(m.Metrics(t.Context()))(t)
	return metrics.Sum(name, labels)
}

// AwaitMetric returns once a series has at least the given value.
func (m *Manager) AwaitMetric(t *testing.T, name string, labels devcluster.Labels, least float64) {
	t.Helper()
	ctx := Context(t)
	Poll(t, "await "+name, func() error {
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

// StartKCM starts the real kube-controller-manager. Its log and exit are not checked.
func (c *ControlPlane) StartKCM(t *testing.T, flags ...string) *devcluster.Manager {
	t.Helper()
	kcm := testutil.Get(c.StartKubeControllerManager(flags...))(t)
	t.Cleanup(func() { _, _ = kcm.Kill() })
	testutil.Must(t, kcm.Ready(Context(t)))
	return kcm
}

// StopKCM stops a kube-controller-manager of StartKCM.
func StopKCM(t *testing.T, kcm *devcluster.Manager) {
	t.Helper()
	if _, err := kcm.Stop(); err != nil {
		t.Fatal(err)
	}
}

func (m *Manager) examineLog(t *testing.T) {
	t.Helper()
	Leaks.Add("log of "+m.name, m.Logs())
	if m.ExpectErrors {
		return
	}
	if complaints := devcluster.Complaints(m.Logs()); len(complaints) > 0 {
		t.Errorf("the manager logged an error: %s", complaints[0]) // one says enough
	}
}
