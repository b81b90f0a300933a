// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// waitTimeout bounds every wait for the cluster.
const waitTimeout = 3 * time.Minute

// nodeBinaries is the directory of a node where the host's build is mounted.
const nodeBinaries = "/opt/sa-controller-manager/bin"

// product is the binary under test on the control-plane node. Our static pod runs it, and a test can
// break or remove it, which it cannot do with the mounted one.
const product = "/usr/local/bin/sa-controller-manager"

// cluster is a kind cluster that is deleted at the end of its test.
type cluster struct {
	name       string
	node       string // where commands run, the first control-plane node if it is empty
	kubeconfig string
	config     *rest.Config
	client     kubernetes.Interface
}

// create creates a cluster from a kind configuration and waits until its control plane is ready.
func create(t *testing.T, configuration string) *cluster {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "kind.yaml")
	testutil.Must(t, os.WriteFile(path, []byte(configuration), 0o600))
	name := "sacm-" + strings.ToLower(strings.NewReplacer("Test", "", "/", "-", "_", "-").Replace(t.Name()))
	kubeconfig := filepath.Join(dir, "kubeconfig")
	args := []string{"create", "cluster", "--name", name, "--kubeconfig", kubeconfig, "--config", path, "--wait", "3m", "--retain"}
	if image := os.Getenv("KIND_NODE_IMAGE"); image != "" {
		args = append(args, "--image", image)
	}
	t.Cleanup(func() { remove(t, name, kubeconfig) })
	run(t, kindCLI(), args...)
	c := connect(t, name, kubeconfig)
	c.installProduct(t)
	return c
}

// installProduct puts the binary under test on the node, by a rename. The mounted one belongs to the
// user of the host, and a takeover wants root's.
func (c *cluster) installProduct(t *testing.T) {
	t.Helper()
	c.onNode(t, "sh", "-c", "install -m 755 "+nodeBinaries+"/sa-controller-manager "+product+".new && mv "+product+".new "+product)
}

// connect returns a client without a rate limit.
func connect(t *testing.T, name, kubeconfig string) *cluster {
	t.Helper()
	config := testutil.Get(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
	config.QPS = -1
	client := testutil.Get(kubernetes.NewForConfig(config))(t)
	return &cluster{name: name, kubeconfig: kubeconfig, config: config, client: client}
}

// poll asks until ok returns nil. It is for what nothing announces.
func poll(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	err := await.Poll(ctx, ok)
	testutil.Require(t, err == nil, "await %s: %v", what, err)
}

// remove deletes the cluster, unless the test has failed and KIND_KEEP is set.
func remove(t *testing.T, name, kubeconfig string) {
	if t.Failed() && os.Getenv("KIND_KEEP") != "" {
		t.Logf("the cluster stays: kind delete cluster --name %s", name)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, kindCLI(), "delete", "cluster", "--name", name, "--kubeconfig",
		kubeconfig).CombinedOutput(); err != nil {
		t.Errorf("delete the cluster %s: %v\n%s", name, err, out)
	}
}

func kindCLI() string { return cmp.Or(os.Getenv("KIND"), "kind") }

// controlPlane returns the name of the control-plane node, which is a container.
func (c *cluster) controlPlane() string { return cmp.Or(c.node, c.name+"-control-plane") }

// minor is the 37 of v1.37.
func (c *cluster) minor(t *testing.T) int {
	t.Helper()
	version := testutil.Get(c.client.Discovery().ServerVersion())(t)
	return testutil.Get(strconv.Atoi(version.Minor))(t)
}

// onNode runs a command on the control-plane node and returns what it prints on stdout.
func (c *cluster) onNode(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, "docker", append([]string{"exec", c.controlPlane()}, args...)...)
}

// onNodeWith is onNode with a text on stdin.
func (c *cluster) onNodeWith(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return runWith(t, stdin, "docker", append([]string{"exec", "-i", c.controlPlane()}, args...)...)
}

// product runs the binary under test on the control-plane node.
func (c *cluster) product(t *testing.T, args ...string) string {
	t.Helper()
	return c.onNode(t, append([]string{product}, args...)...)
}

// readManifest returns the current manifest of a static pod.
func (c *cluster) readManifest(t *testing.T, name string) string {
	t.Helper()
	return c.onNode(t, "cat", "/etc/kubernetes/manifests/"+name+".yaml")
}

// run runs a command of the host and fails the test if it fails.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	return runWith(t, "", name, args...)
}

func runWith(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	begin := time.Now()
	stdout, err := attempt(t.Context(), stdin, name, args...)
	t.Logf("%s %s: %v", filepath.Base(name), strings.Join(args, " "), time.Since(begin).Round(10*time.Millisecond))
	testutil.Must(t, err)
	return stdout
}

// attempt is like run for a command that may fail. The error contains its output.
func attempt(ctx context.Context, stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); ok {
			return stdout.String(), fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, stdout.String(), stderr.String())
		}
		return "", err
	}
	return stdout.String(), nil
}
