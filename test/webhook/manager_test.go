// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"regexp"
	"strconv"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
)

// manager is a running sa-controller-manager whose webhook is on.
type manager struct {
	*devcluster.Manager

	port    int  // of the webhook
	faulty  bool // errors in the log are expected
	stopped bool
}

// start starts the binary with its webhook on a free port and the given flags after
// that, and stops it when the test ends. It does not wait.
func (c *cluster) start(t *testing.T, flags ...string) *manager {
	t.Helper()
	binary, err := shared.binary()
	testutil.Must(t, err)
	m := &manager{port: freePort(t)}
	defaults := []string{
		"--webhook-port=" + strconv.Itoa(m.port),
		"--webhook-drain-delay=0s", // at the end of most tests nobody calls
	}
	m.Manager, err = binary.StartManager(c.Cluster, append(defaults, flags...)...)
	testutil.Must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last lines of the manager's log:\n%s", m.LogTail(40))
		}
		m.stop(t)
	})
	return m
}

// manage starts a manager that registers itself by URL, and returns once kube-apiserver
// asks it about Pods.
func (c *cluster) manage(t *testing.T, flags ...string) *manager {
	t.Helper()
	m := c.start(t, append([]string{"--webhook-registration=url"}, flags...)...)
	m.awaitReady(t)
	c.awaitBound(t)
	return m
}

func (m *manager) awaitReady(t *testing.T) {
	t.Helper()
	if err := m.Ready(limited(t)); err != nil {
		t.Fatalf("await the manager: %v", err)
	}
}

// lostRace is what client-go logs in the one of two processes that wanted to create or
// take the Lease at the same time and came second.
var lostRace = regexp.MustCompile(`leaderelection\.go:.*(already exists|the object has been modified)`)

// stop sends SIGTERM and holds the manager to what it must never do. It does nothing if
// the manager was stopped before.
func (m *manager) stop(t *testing.T) {
	t.Helper()
	if m.stopped {
		return
	}
	m.stopped = true
	exit, err := m.Stop()
	if err != nil {
		t.Errorf("end the manager: %v", err)
	}
	if exit.Code != 0 {
		t.Errorf("the manager ended with code %d, want 0", exit.Code)
	}
	if m.faulty {
		return
	}
	if complaints := devcluster.Complaints(m.Logs(), lostRace); len(complaints) > 0 {
		t.Errorf("the manager logged an error: %s", complaints[0]) // one says enough
	}
}

// metric is a series' value now.
func (m *manager) metric(t *testing.T, name string, labels devcluster.Labels) float64 {
	t.Helper()
	metrics, err := m.Metrics(limited(t))
	testutil.Must(t, err)
	return metrics.Sum(name, labels)
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := devcluster.FreePort()
	testutil.Must(t, err)
	return port
}
