// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// binaries is the directory of the host that nodes see as nodeBinaries. It holds
// sa-controller-manager and apicheck.
func binaries(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SACM_NODE_BINARIES")
	for _, name := range []string{"sa-controller-manager", "apicheck"} {
		_, err := os.Stat(filepath.Join(dir, name))
		testutil.Require(t, err == nil, "SACM_NODE_BINARIES: %v; use make e2e-kind", err)
	}
	return dir
}

// stock is the configuration of a cluster as kind ships it, with workers, whose nodes
// see our binaries.
func stock(t *testing.T, workers int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnetworking: {apiServerAddress: 127.0.0.1}\nnodes:\n")
	for i := range 1 + workers {
		role := "worker"
		if i == 0 {
			role = "control-plane"
		}
		fmt.Fprintf(&b, "- role: %s\n  extraMounts:\n  - {hostPath: %q, containerPath: %s, readOnly: true}\n", role, binaries(t),
			nodeBinaries)
	}
	return b.String()
}

// staticPodSource is where the manifest of our static pod is on a node that has not been
// given it yet.
const staticPodSource = "/opt/sa-controller-manager/static-pod.yaml"

// ours is the configuration that "make kind-up" uses, with our client beside the binary,
// and without the static pod if it is to come later.
func ours(t *testing.T, staticPod bool) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("SACM_BINARY", filepath.Join(binaries(t), "sa-controller-manager"))
	run(t, "./config.sh", dir)
	content := testutil.Get(os.ReadFile(filepath.Join(dir, "kind.yaml")))(t)
	const mounts = "    extraMounts:\n"
	client := fmt.Sprintf("      - {hostPath: %q, containerPath: %s/apicheck, readOnly: true}\n", filepath.Join(binaries(t), "apicheck"),
		nodeBinaries)
	configuration := strings.Replace(string(content), mounts, mounts+client, 1)
	if !staticPod {
		configuration = strings.Replace(configuration, "/etc/kubernetes/manifests/sa-controller-manager.yaml", staticPodSource, 1)
	}
	return configuration
}

// asker is a Pod that asks who it is and ends. Its image is one that every node has;
// what runs in it comes from the node.
func (c *cluster) asker(t *testing.T, changes ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "asker-"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name:            "main",
				Image:           c.ownImage(t),
				ImagePullPolicy: corev1.PullNever,
				Command:         []string{nodeBinaries + "/apicheck"},
				VolumeMounts:    []corev1.VolumeMount{{Name: "bin", MountPath: nodeBinaries, ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "bin", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: nodeBinaries},
			}}},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// ownImage is the image that kube-controller-manager runs in.
func (c *cluster) ownImage(t *testing.T) string {
	t.Helper()
	for line := range strings.Lines(c.readManifest(t, "kube-controller-manager")) {
		if _, image, found := strings.Cut(line, "image: "); found {
			return strings.TrimSpace(image)
		}
	}
	t.Fatal("the manifest of kube-controller-manager names no image")
	return ""
}

// withInitContainer has an init container ask first.
func withInitContainer(pod *corev1.Pod) {
	first := *pod.Spec.Containers[0].DeepCopy()
	first.Name = "init"
	pod.Spec.InitContainers = []corev1.Container{first}
}

// on binds the Pod to a node.
func on(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = node }
}

// answers runs the Pod to its end and returns what each of its containers prints.
func (c *cluster) answers(t *testing.T, namespace string, pod *corev1.Pod) map[string]authenticationv1.UserInfo {
	t.Helper()
	pod, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	testutil.Must(t, err)
	pod = c.awaitPhase(t, pod, corev1.PodSucceeded, corev1.PodFailed)
	told := map[string]authenticationv1.UserInfo{}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		log, err := c.client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container.Name}).DoRaw(t.Context())
		testutil.Must(t, err)
		var user authenticationv1.UserInfo
		testutil.Require(t, json.Unmarshal(log, &user) == nil, "container %s of %s has no answer: %s", container.Name, pod.Name, log)
		told[container.Name] = user
	}
	testutil.Expect(t, pod.Status.Phase == corev1.PodSucceeded, "Pod %s ended as %s", pod.Name, pod.Status.Phase)
	return told
}

// awaitPhase returns the Pod once it is in one of the phases.
func (c *cluster) awaitPhase(t *testing.T, pod *corev1.Pod, phases ...corev1.PodPhase) *corev1.Pod {
	t.Helper()
	pods := c.awaitPods(t, pod.Namespace, func(pods []*corev1.Pod) error {
		found, ok := await.Find(pods, pod.Name)
		if !ok {
			return await.Named[*corev1.Pod](pod.Name)(pods)
		}
		return inPhase(found, phases...)
	})
	found, _ := await.Find(pods, pod.Name)
	return found
}

// awaitPods returns the Pods of a namespace, or of all, once they pass the check.
func (c *cluster) awaitPods(t *testing.T, namespace string, check await.Check[*corev1.Pod]) []*corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	pods, err := await.Pods(ctx, c.client, namespace, check)
	testutil.Must(t, err)
	return pods
}

func inPhase(pod *corev1.Pod, phases ...corev1.PodPhase) error {
	if !slices.Contains(phases, pod.Status.Phase) {
		return fmt.Errorf("%s/%s is %s, want one of %s", pod.Namespace, pod.Name, pod.Status.Phase, phases)
	}
	return nil
}

// allReady passes when there are Pods and every one is ready, less those that have
// ended well.
func allReady(pods []*corev1.Pod) error {
	if len(pods) == 0 {
		return errors.New("there is no Pod")
	}
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodSucceeded && !isReady(pod) {
			return fmt.Errorf("%s/%s is %s and not ready", pod.Namespace, pod.Name, pod.Status.Phase)
		}
	}
	return nil
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// restarts counts those of the Pod's containers.
func restarts(pod *corev1.Pod) (n int32) {
	for _, status := range pod.Status.ContainerStatuses {
		n += status.RestartCount
	}
	return n
}
