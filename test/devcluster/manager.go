// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"sa-controller-manager/test/await"
)

// stopPatience is well over the ten seconds in which the product promises to
// drain, because a race-enabled build on a loaded machine is slow.
const stopPatience = 30 * time.Second

const (
	// RestGoroutines is how many goroutines sa-controller-manager has at most where nobody leans
	// on it: a leader with its watches, its two servers, and a connection of each client that it
	// has in these tests (promise 8 of docs/reliability.md).
	RestGoroutines = 350
	// restLimit is how long it may keep what it had for others after those have gone.
	restLimit = 20 * time.Second
)

// raceWarning is what the race detector prints, whatever the exit code.
const raceWarning = "WARNING: DATA RACE"

// Manager is a running sa-controller-manager, or kube-controller-manager in its
// place.
type Manager struct {
	*process
	*probe // of its secure port

	readyPath string
	// most is how many goroutines it may have left when it is stopped; 0 means any number.
	most int
}

// StartKubeControllerManager starts the real kube-controller-manager with only
// those of its controllers that the product replaces, which the given flags may
// override. It is what the product is compared with.
func (c *Cluster) StartKubeControllerManager(flags ...string) (*Manager, error) {
	path, err := ControlPlaneBinary("kube-controller-manager")
	if err != nil {
		return nil, err
	}
	defaults := []string{
		"--leader-elect=false", "--controllers=serviceaccount,serviceaccount-token", "--use-service-account-credentials=false",
		"--service-account-private-key-file=" + c.SigningKeyFile(), "--root-ca-file=" + c.CAFile(),
	}
	// It has no /readyz.
	return c.startManager("kube-controller-manager", path, "/healthz", append(defaults, flags...), nil, nil)
}

// startManager starts a manager with the flags that both binaries know; the
// last of several equal flags counts.
func (c *Cluster) startManager(name, path, readyPath string, flags, env []string, tee io.Writer) (*Manager, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	m := &Manager{readyPath: readyPath}
	config := c.Config()
	config.Host = "https://" + address(port)
	// It serves with a certificate of its own making.
	config.TLSClientConfig.CAData, config.TLSClientConfig.Insecure = nil, true
	if m.probe, err = newProbe(config); err != nil {
		return nil, err
	}
	args := append([]string{
		"--kubeconfig=" + c.Kubeconfig(), "--bind-address=" + loopback, "--secure-port=" + strconv.Itoa(port), "-v=2",
	}, flags...)
	if c.host != nil {
		if err := c.host.forward(port, nil, c.host); err != nil {
			return nil, err
		}
	}
	if m.process, err = c.host.start(name, path, c.dir, args, env, tee); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.managers = append(c.managers, m)
	return m, nil
}

// Ready returns once the manager says that it is ready, and with an error when
// ctx or the manager ends first.
func (m *Manager) Ready(ctx context.Context) error { return m.awaitOK(ctx, m.readyPath, m.process) }

// URL is where the manager serves, https://127.0.0.1:port.
func (m *Manager) URL() string { return m.probe.url }

// AwaitLog returns once the manager has printed text, and with an error when
// ctx or the manager ends first.
func (m *Manager) AwaitLog(ctx context.Context, text string) error {
	if m.log.await(ctx, text, m.done) {
		return nil
	}
	if !m.running() {
		return fmt.Errorf("await %q in the log: %w", text, m.unexpectedExit())
	}
	return fmt.Errorf("await %q in the log of %s: %w", text, m.name, context.Cause(ctx))
}

// Stop sends SIGTERM and waits until the manager is gone. It is an error if the
// manager had to be killed, if the race detector found something at any time, or if
// sa-controller-manager has more than RestGoroutines before that, for restLimit.
// A manager that ended before is reported with its exit code and no error.
func (m *Manager) Stop() (Exit, error) {
	leaks := m.leaks()
	exit, err := m.stop(stopPatience)
	return exit, errors.Join(leaks, err, m.races())
}

// leaks returns what awaitRest does. One that does not answer, because it is paused, has ended
// or does not serve yet, has nothing to tell.
func (m *Manager) leaks() error {
	if m.most == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), restLimit)
	defer cancel()
	once, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	metrics, err := m.Metrics(once)
	if err != nil || goroutines(metrics) <= m.most {
		return nil
	}
	return m.awaitRest(ctx)
}

func goroutines(metrics Metrics) int { return int(metrics.Sum("go_goroutines", nil)) }

// awaitRest returns once sa-controller-manager has RestGoroutines at most. If ctx ends before,
// the error says what they are.
func (m *Manager) awaitRest(ctx context.Context) error {
	err := await.Poll(ctx, func(ctx context.Context) error {
		metrics, err := m.Metrics(ctx)
		if err != nil {
			return err
		}
		if has := goroutines(metrics); has > m.most {
			return fmt.Errorf("%s has %d goroutines, want %d at most", m.name, has, m.most)
		}
		return nil
	})
	if err == nil {
		return nil
	}
	profile, profileErr := m.Get(context.WithoutCancel(ctx), "/debug/pprof/goroutine?debug=1")
	if profileErr != nil {
		profile = profileErr.Error()
	}
	const longest = 4000
	return fmt.Errorf("%w:\n%s", err, profile[:min(len(profile), longest)])
}

// Kill ends the manager at once. Races found until then are an error.
func (m *Manager) Kill() (Exit, error) {
	exit, err := m.process.Kill()
	return exit, errors.Join(err, m.races())
}

// races reports what the race detector printed, from the first warning on.
func (m *Manager) races() error {
	_, report, found := strings.Cut(m.Logs(), raceWarning)
	if !found {
		return nil
	}
	return fmt.Errorf("%s has a data race:\n%s%s", m.name, raceWarning, report)
}

// AwaitIdle returns once no queue holds a key and no sync is under way. Keys that wait for
// their time to come, after a failure or in a grace period, do not count.
func (m *Manager) AwaitIdle(ctx context.Context) error {
	last := -1.0
	return await.Poll(ctx, func(ctx context.Context) error {
		metrics, err := m.Metrics(ctx)
		if err != nil {
			return err
		}
		added := metrics.Sum("workqueue_adds_total", nil)
		worked := metrics.Sum("workqueue_work_duration_seconds", nil)
		if depth := metrics.Sum("workqueue_depth", nil); depth != 0 || added != worked {
			return fmt.Errorf("%v keys added, %v worked on, %v waiting", added, worked, depth)
		}
		if added == 0 {
			return errors.New("nothing has been queued yet")
		}
		// One scrape is no snapshot: only if nothing has moved between two of them,
		// nothing moves.
		if added != last {
			last = added
			return errors.New("it has only been idle for a moment")
		}
		return nil
	})
}

// Pause stops the manager with SIGSTOP, like a suspended machine; its connections stay open. Stop
// does not end a paused manager: Resume it first.
func (m *Manager) Pause() error { return m.signal(syscall.SIGSTOP) }

// Resume continues a paused manager.
func (m *Manager) Resume() error { return m.signal(syscall.SIGCONT) }

// Metrics are the metric families of one scrape, by name.
type Metrics map[string]*dto.MetricFamily

// Labels select series: each label named must have the value given. No labels
// select every series of a metric.
type Labels map[string]string

// parseMetrics reads the Prometheus text format.
func parseMetrics(text string) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	return families, nil
}

// Sum adds up the series of that name with those labels. A histogram or summary
// counts as its number of observations. No series at all is 0.
func (m Metrics) Sum(name string, labels Labels) float64 {
	var sum float64
	for _, series := range m[name].GetMetric() {
		if matches(series, labels) {
			sum += value(series)
		}
	}
	return sum
}

func matches(series *dto.Metric, labels Labels) bool {
	matched := 0
	for _, pair := range series.GetLabel() {
		if want, ok := labels[pair.GetName()]; ok && want == pair.GetValue() {
			matched++
		}
	}
	return matched == len(labels)
}

// value is that of the one kind the series has; the others are zero.
func value(series *dto.Metric) float64 {
	return series.GetCounter().GetValue() +
		series.GetGauge().GetValue() +
		series.GetUntyped().GetValue() +
		float64(series.GetHistogram().GetSampleCount()) +
		float64(series.GetSummary().GetSampleCount())
}

// Binary is a build of sa-controller-manager.
type Binary struct {
	// Path of the executable.
	Path string
	// Env is what the environment of its managers has besides this process's own.
	Env []string
	// Log, unless nil, receives the output of its managers as it comes.
	Log io.Writer
}

// FindBinary returns the build that the environment variable SACM_BINARY names,
// as make test does. Without it, bin/sa-controller-manager is built from the
// product's own go.mod, so that a test never runs yesterday's code.
func FindBinary(ctx context.Context) (Binary, error) {
	if path := os.Getenv("SACM_BINARY"); path != "" {
		path, err := existing(path, "SACM_BINARY names it")
		return Binary{Path: path}, err
	}
	root, err := repositoryRoot()
	if err != nil {
		return Binary{}, err
	}
	path := filepath.Join(root, "bin", productModule)
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/"+productModule)
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return Binary{}, fmt.Errorf("build %s: %w\n%s", productModule, err, output)
	}
	return Binary{Path: path}, nil
}

// Run runs a command of the binary, and returns what it prints. An error has what it prints on standard error.
func (b Binary) Run(ctx context.Context, args ...string) (stdout []byte, err error) {
	command := exec.CommandContext(ctx, b.Path, args...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	if stdout, err = command.Output(); err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout, err
}

// StartManager starts the binary beside the cluster, with the cluster's key, root
// CA and issuer, asking the cluster who may read its metrics, without leader election and webhook, and with the given flags after
// those, of which the last of several equal ones counts.
// It does not wait; Manager.Ready does. Cluster.Stop stops a manager that still runs.
func (b Binary) StartManager(c *Cluster, flags ...string) (*Manager, error) {
	return b.start(c, append([]string{
		"--leader-elect=false",
		"--service-account-private-key-file=" + c.SigningKeyFile(),
		"--root-ca-file=" + c.CAFile(),
		// Its port is fixed by default, and several managers may run at a time.
		"--webhook-port=0",
	}, flags...))
}

// StartSigner starts the binary likewise as nothing but the external signer of kube-apiserver, on the cluster's socket.
func (b Binary) StartSigner(c *Cluster, flags ...string) (*Manager, error) {
	return b.start(c, append([]string{"signer", "--external-signer-socket=" + c.SignerSocket()}, flags...))
}

func (b Binary) start(c *Cluster, flags []string) (*Manager, error) {
	const issuer = "--service-account-issuer="
	if !slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(flag, issuer) }) {
		flags = append(flags, issuer+c.Issuer())
	}
	m, err := c.startManager(productModule, b.Path, "/readyz", append([]string{
		"--authentication-kubeconfig=" + c.Kubeconfig(),
		"--authorization-kubeconfig=" + c.Kubeconfig(),
		// So that Manager.Metrics works while kube-apiserver does not.
		"--client-ca-file=" + c.ClientCAFile(),
	}, flags...), b.Env, b.Log)
	if err != nil {
		return nil, err
	}
	m.most = RestGoroutines
	return m, nil
}

// probe asks the health and metrics endpoints of one server.
type probe struct {
	client *http.Client
	url    string
}

func newProbe(config *rest.Config) (*probe, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	return &probe{client: client, url: strings.TrimSuffix(config.Host, "/")}, nil
}

// awaitOK returns once path answers 200, and with an error when ctx or one of
// the processes it depends on ends first.
func (p *probe) awaitOK(ctx context.Context, path string, processes ...*process) error {
	var ended error
	err := await.Poll(ctx, func(ctx context.Context) error {
		_, err := p.Get(ctx, path)
		for _, process := range processes {
			if err != nil && !process.running() {
				ended = process.unexpectedExit()
				return nil
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("await %s: %w", path, err)
	}
	return ended
}

// Get returns the body of an answer with status 200; any other is an error.
func (p *probe) Get(ctx context.Context, path string) (string, error) {
	// A server that hangs must not keep us from seeing that it recovered.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return "", fmt.Errorf("make a request for %s: %w", path, err)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return "", err // it names method and URL
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s: %s", path, response.Status, body)
	}
	return string(body), nil
}

// Metrics reads the server's metrics.
func (p *probe) Metrics(ctx context.Context) (Metrics, error) {
	body, err := p.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(body)
}

// Ports are taken from below the range that Linux hands out by itself
// (32768 and up), so that no outgoing connection takes one between our look and
// the child's bind, or while kube-apiserver is down for a restart.
const (
	firstPort = 20000
	portCount = 10000
)

// loopback is the one address anything here listens on.
const loopback = "127.0.0.1"

// FreePort returns a port of loopback on which nothing listens now.
func FreePort() (int, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// FreePorts returns n different ports of loopback on which nothing listens now.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range 100 * n {
		port := firstPort + rand.IntN(portCount)
		listener, err := net.Listen("tcp", address(port))
		if err != nil {
			continue
		}
		// Held until all are found, so that none is found twice.
		defer listener.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("find a free port on " + loopback)
}

func address(port int) string { return fmt.Sprintf("%s:%d", loopback, port) }

// OwnAddress returns an address of this machine that is not loopback, which endpoints may not have. What is sent
// to it does not leave the machine.
func OwnAddress() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, address := range addresses {
		network, ok := address.(*net.IPNet)
		if ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String(), nil
		}
	}
	return "", errors.New("this machine has no address but loopback, which endpoints may not have")
}
