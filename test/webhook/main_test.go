// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook proves the admission webhook of sa-controller-manager on a real
// kube-apiserver that runs without its own ServiceAccount plugin. It holds tests only.
//
// The binary under test is the one that devcluster.FindBinary finds. The judge is
// kube-apiserver: what it makes of a Pod, and what it says when it refuses one.
//
// All tests share one control plane, which is started when the first of them asks for
// it. A webhook concerns a whole cluster, so the tests run one after the other, each
// with managers of its own; their subtests, each in a namespace of its own, run in
// parallel. When a test ends, its managers have ended and its registration is gone. Those of files
// have a control plane each, and run side by side.
//
// Waiting is done by watch, or by asking what nothing announces: health endpoints, and
// when kube-apiserver has learned of a webhook configuration, which a Pod created with
// dryRun tells.
//
// What must never happen, in any test: a data race, an exit code other than 0 after
// SIGTERM, and an error in the log where no fault was injected.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/traffic"
)

// suite is what the tests of the package share.
type suite struct {
	binary func() (devcluster.Binary, error)

	mu      sync.Mutex
	cluster *cluster // nil until a test asks for it
}

// shared is set before the first test begins.
var shared *suite

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// run is a function of its own so that what it defers happens before the exit.
func run(m *testing.M) int {
	// A race-enabled binary sleeps a second at its end by default. Its races are read
	// from its log.
	if os.Getenv("GORACE") == "" {
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0 exitcode=0"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	shared = &suite{binary: sync.OnceValues(func() (devcluster.Binary, error) { return devcluster.FindBinary(context.Background()) })}
	code := m.Run()
	if err := shared.finish(); err != nil {
		fmt.Fprintf(os.Stderr, "after all tests: %v\n", err)
		return 1
	}
	return code
}

// finish stops what is shared and looks at what the whole run has left behind.
func (s *suite) finish() error {
	var errs []error
	if s.cluster != nil {
		s.cluster.idle()
		errs = append(errs, s.cluster.Stop())
	}
	return errors.Join(append(errs, goleak.Find())...)
}

// timeout limits every wait. It is long because only a failing test reaches it.
const timeout = 3 * time.Minute

// What the product calls its own.
const (
	configurationName = "00-sa-controller-manager"
	caSecretName      = "sa-controller-manager-webhook-ca"
)

// cluster is the running control plane.
type cluster struct {
	*devcluster.Cluster

	client kubernetes.Interface
	idle   func() // closes connections
}

func (c *cluster) mutating() clientv1.MutatingWebhookConfigurationInterface {
	return c.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
}

func (c *cluster) validating() clientv1.ValidatingWebhookConfigurationInterface {
	return c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
}

// controlPlane is the one that all tests share. A test asks for it before it starts a
// manager: then its registration goes after its last manager has ended.
func controlPlane(t *testing.T) *cluster {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		started := testutil.Get(devcluster.Start(context.Background(), devcluster.Options{APIServerFlags: map[string][]string{
			"enable-aggregator-routing": {"true"}, // it looks the endpoints of a Service up itself
		}}))(t)
		shared.cluster = &cluster{Cluster: started}
		shared.cluster.connect(t)
	}
	c := shared.cluster
	t.Cleanup(func() { c.clear(t) })
	return c
}

func (c *cluster) connect(t *testing.T) {
	t.Helper()
	config := c.Config()
	config.WarningHandler = rest.NoWarnings{} // some objects here are old-fashioned on purpose
	transport := testutil.Get(rest.HTTPClientFor(config))(t)
	c.client = testutil.Get(kubernetes.NewForConfigAndClient(config, transport))(t)
	c.idle = transport.CloseIdleConnections
}

// clear takes out what managers have registered, so that the next test finds a cluster
// that has never seen one.
func (c *cluster) clear(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
	defer cancel()
	err := errors.Join(
		ignoreNotFound(c.mutating().Delete(ctx, configurationName, metav1.DeleteOptions{})),
		ignoreNotFound(c.validating().Delete(ctx, configurationName, metav1.DeleteOptions{})),
		ignoreNotFound(c.client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, caSecretName, metav1.DeleteOptions{})),
	)
	testutil.CheckError(t, "take out the registration", "", err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// namespace makes a namespace for one test. It stays.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	namespace := testutil.Get(c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{}))(t)
	return namespace.Name
}

// limited bounds a wait.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errors.New("the test timed out"))
	t.Cleanup(cancel)
	return ctx
}

// poll asks until ok is satisfied. It is for what nothing announces.
func poll(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	err := await.Poll(limited(t), ok)
	testutil.Require(t, err == nil, "%s: %v", what, err)
}

// traffic creates Pods in the namespace until the test ends, or before with Finish.
func (c *cluster) traffic(t *testing.T, namespace string) *traffic.Traffic {
	t.Helper()
	return traffic.Start(t, func(ctx context.Context) (*corev1.Pod, error) {
		return c.client.CoreV1().Pods(namespace).Create(ctx, newPod(), metav1.CreateOptions{})
	})
}

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
	binary := testutil.Get(shared.binary())(t)
	m := &manager{port: freePort(t)}
	defaults := []string{
		"--webhook-port=" + strconv.Itoa(m.port),
		"--webhook-drain-delay=0s", // at the end of most tests nobody calls
	}
	m.Manager = testutil.Get(binary.StartManager(c.Cluster, append(defaults, flags...)...))(t)
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
	testutil.Must(t, m.Ready(limited(t)))
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
	testutil.CheckError(t, "end the manager", "", err)
	testutil.Check(t, "exit code of the manager", 0, exit.Code)
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
	metrics := testutil.Get(m.Metrics(limited(t)))(t)
	return metrics.Sum(name, labels)
}

func freePort(t *testing.T) int {
	t.Helper()
	return testutil.Get(devcluster.FreePort())(t)
}
