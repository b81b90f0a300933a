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
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"sa-controller-manager/test/await"
)

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
