// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/canary"
)

// Leaks gets everything that managers print, and every token and key, and at the end of the run
// looks for the latter in the former.
var Leaks canary.Canary

// shared is the control plane that the tests of a package share.
var shared struct {
	sync.Mutex

	cluster *ControlPlane // nil until a test needs it
}

// suiteDir is set before the first test begins.
var suiteDir string

// Dir returns a directory for files that outlive a single test.
func Dir() string { return suiteDir }

var findBinary = sync.OnceValues(func() (devcluster.Binary, error) { return devcluster.FindBinary(context.Background()) })

// Binary returns the binary under test.
func Binary(t *testing.T) devcluster.Binary {
	t.Helper()
	return testutil.Get(findBinary())(t)
}

// Main runs the tests of a package and returns the exit code.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sacm-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	suiteDir = dir
	defer func() { _ = os.RemoveAll(dir) }() // a leftover directory does no harm
	// The tests' own clients would log each connection that is cut on purpose.
	klog.SetLogger(logr.Discard())
	// A race-enabled binary sleeps a second at its end by default. Its races are read
	// from its log (devcluster).
	if os.Getenv("GORACE") == "" {
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0 exitcode=0"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if err := finish(); err != nil {
		fmt.Fprintf(os.Stderr, "after all tests: %v\n", err)
		return 1
	}
	return code
}

// finish stops the shared control plane and checks what the whole run has left behind.
func finish() error {
	var errs []error
	if shared.cluster != nil {
		errs = append(errs, shared.cluster.stop())
	}
	errs = append(errs, Leaks.Check())
	return errors.Join(append(errs, goleak.Find())...)
}

// Shared returns the control plane that no test restarts. A test calls it before it
// starts a manager, so that its namespaces are purged after its last manager has ended.
func Shared(t *testing.T) *ControlPlane {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		shared.cluster = startShared(t)
	}
	c := shared.cluster
	t.Cleanup(func() { c.purge(t) })
	return c
}

func startShared(t *testing.T) *ControlPlane {
	t.Helper()
	// Tests compare ECDSA tokens as well, and those have to be accepted too.
	testutil.Must(t, devcluster.WriteSigningKey(ECDSAKeyFile(), devcluster.ECDSA))
	cluster := testutil.Get(startControlPlane(context.Background(), devcluster.Options{ExtraKeyFiles: []string{ECDSAKeyFile()}}))(t)
	Leaks.AddKeyFile(t, ECDSAKeyFile())
	return cluster
}

// ECDSAKeyFile returns the path of a P-256 key whose tokens the shared kube-apiserver accepts
// besides those of its own RSA key.
func ECDSAKeyFile() string { return filepath.Join(suiteDir, "ecdsa.key") }

// Output is what a command printed, and its exit code.
type Output struct {
	Code           int
	Stdout, Stderr string
}

// Run runs the binary with the given standard input. Its output goes to the canary.
func Run(t *testing.T, input string, args ...string) Output {
	t.Helper()
	return RunCommand(t, exec.CommandContext(Context(t), Binary(t).Path, args...), input)
}

// RunCommand is Run of another program, with the environment of cmd.
func RunCommand(t *testing.T, cmd *exec.Cmd, input string) Output {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	err := cmd.Run()
	exit := (*exec.ExitError)(nil)
	testutil.Require(t, err == nil || errors.As(err, &exit), "%v", err)
	got := Output{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
	Leaks.Add("output of "+strings.Join(cmd.Args[1:3], " "), got.Stderr+got.Stdout)
	return got
}

// ExpectCode ends the test unless the command has exited with the code.
func (p Output) ExpectCode(t *testing.T, code int) Output {
	t.Helper()
	testutil.Require(t, p.Code == code, "exit code %d, want %d\n%s\n%s", p.Code, code, p.Stdout, p.Stderr)
	return p
}

// ExpectTexts checks that every text was printed.
func (p Output) ExpectTexts(t *testing.T, texts ...string) Output {
	t.Helper()
	for _, text := range texts {
		testutil.CheckContains(t, "printed", text, p.Stdout+p.Stderr)
	}
	return p
}

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
	testutil.Expect(t, err == nil, "stop the manager: %v", err)
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
	_, err := kcm.Stop()
	testutil.Must(t, err)
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
