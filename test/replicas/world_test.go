// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/traffic"
)

// waitTimeout bounds every wait. Only a failing test reaches it.
const waitTimeout = 3 * time.Minute

const configurationName = "00-sa-controller-manager"

func TestMain(m *testing.M) {
	// A race-enabled binary sleeps a second at its end by default. Its races are read
	// from its log.
	if os.Getenv("GORACE") == "" {
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0 exitcode=0"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// cluster is a host with kube-apiserver.
type cluster struct {
	*devcluster.Cluster

	client kubernetes.Interface
}

// start starts a control plane without kube-apiserver's own plugin.
func start(t *testing.T) *cluster {
	t.Helper()
	started, err := devcluster.Start(t.Context(), devcluster.Options{APIServerFlags: map[string][]string{
		"enable-aggregator-routing": {"true"}, // it looks the endpoints of a Service up itself
	}})
	testutil.Must(t, err)
	stops(t, started)
	c := &cluster{Cluster: started, client: client(t, started)}
	// A control plane without KCM has none, and Pods are created at once.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err = c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(), account, metav1.CreateOptions{})
	testutil.Must(t, err)
	return c
}

func stops(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func client(t *testing.T, c *devcluster.Cluster) kubernetes.Interface {
	t.Helper()
	client, err := c.Client()
	testutil.Must(t, err)
	return client
}

// manager is a replica.
type manager struct{ *devcluster.Manager }

// manage starts a replica that takes part in the election.
func (c *cluster) manage(t *testing.T, binary devcluster.Binary, flags ...string) *manager {
	t.Helper()
	started, err := binary.StartManager(c.Cluster, append([]string{"--leader-elect=true", "--token-secrets=manual"}, flags...)...)
	testutil.Must(t, err)
	m := &manager{started}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last lines of the manager's log:\n%s", m.LogTail(40))
		}
	})
	return m
}

func (m *manager) awaitReady(t *testing.T) {
	t.Helper()
	if err := m.Ready(limited(t)); err != nil {
		t.Fatalf("await the manager: %v", err)
	}
}

// expected is what client-go logs as an error in a replica that loses a race for the Lease,
// and in any that loses its kube-apiserver.
var expected = regexp.MustCompile(`leaderelection\.go:|election\.go:|connection refused|connection reset|EOF|http2: client connection lost`)

// stop ends a replica in order.
func (m *manager) stop(t *testing.T) {
	t.Helper()
	exit, err := m.Stop()
	if err != nil || exit.Code != 0 {
		t.Errorf("end the manager: code %d, %v", exit.Code, err)
	}
	for _, line := range devcluster.Complaints(m.Logs(), expected) {
		t.Errorf("the manager logged an error: %s", line)
	}
}

func (m *manager) metric(ctx context.Context, name string) (float64, error) {
	metrics, err := m.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	return metrics.Sum(name, nil), nil
}

// limited bounds a wait.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), waitTimeout, errors.New("the wait has timed out"))
	t.Cleanup(cancel)
	return ctx
}

// poll asks until ok is satisfied. It is for what nothing announces.
func poll(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	if err := await.Poll(limited(t), ok); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func currentBinary(t *testing.T) devcluster.Binary {
	t.Helper()
	binary, err := devcluster.FindBinary(t.Context())
	testutil.Must(t, err)
	return binary
}

// bound reports whether kube-apiserver calls the webhook for more than probes.
func (c *cluster) bound(ctx context.Context) (bool, error) {
	mutating, err := c.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, configurationName, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	for _, webhook := range mutating.Webhooks {
		if len(webhook.MatchConditions) != 1 || webhook.MatchConditions[0].Name != "only-the-probe" {
			return true, nil
		}
	}
	return false, nil
}

func (c *cluster) awaitBound(t *testing.T) {
	t.Helper()
	poll(t, "await a webhook that is bound", func(ctx context.Context) error {
		bound, err := c.bound(ctx)
		if err == nil && !bound {
			err = errors.New("it is not bound")
		}
		return err
	})
}

// startTraffic creates Pods through one kube-apiserver.
func startTraffic(t *testing.T, client kubernetes.Interface) *traffic.Traffic {
	t.Helper()
	return traffic.Start(t, func(ctx context.Context) (*corev1.Pod, error) {
		ctx, cancel := context.WithTimeout(ctx, waitTimeout)
		defer cancel()
		return client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, traffic.Pod(), metav1.CreateOptions{})
	})
}
