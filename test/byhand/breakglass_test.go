// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// The command is taken from the help, so that the help is right when it is needed.
func TestBreakGlassWithKubectlAlone(t *testing.T) {
	await.Long(t)
	cluster := testcluster.New(t, devcluster.Options{})
	shell := newShell(t, cluster)
	command := kubectlCommand(t, shell)
	flags := webhookFlags(t)
	first := startManager(t, cluster, flags)
	if pod := createPod(t, cluster); pod.Spec.ServiceAccountName != "default" {
		t.Fatalf("serviceaccount %q: the webhook is not in", pod.Spec.ServiceAccountName)
	}

	begun := time.Now()
	if got := shell.run(t, command)[0]; got.code != "0" {
		t.Fatalf("%s\nexit code %s: %s", command, got.code, got.printed)
	}
	awaitUntouched(t, cluster, begun.Add(10*time.Second))
	t.Logf("the webhook is out after %s", time.Since(begun).Round(time.Millisecond))

	// It stays out: also for a leader that has never seen it registered.
	if _, err := first.Stop(); err != nil {
		t.Error(err)
	}
	second := runManager(t, cluster, flags)
	ready(t, second, `state="off"`)
	if pod := createPod(t, cluster); !untouched(pod) {
		t.Errorf("pod %s has serviceaccount %q: the webhook has come back", pod.Name, pod.Spec.ServiceAccountName)
	}

	if got := shell.run(t, "sa-controller-manager webhook register --kubeconfig=\"$KUBECONFIG\"")[0]; got.code != "0" {
		t.Fatalf("webhook register: exit code %s: %s", got.code, got.printed)
	}
	ready(t, second, `state="registered"`)
}

// kubectlCommand is the command that the help gives for kubectl.
func kubectlCommand(t *testing.T, shell *shell) string {
	t.Helper()
	help := shell.run(t, "sa-controller-manager webhook --help")[0].printed
	command := regexp.MustCompile(`kubectl patch (.*\\\n)*.*\n`).FindString(help)
	if !strings.Contains(command, "00-sa-controller-manager") {
		t.Fatalf("no command in the help:\n%s", help)
	}
	return command
}

// webhookFlags register a webhook on a port on which nothing listens now.
func webhookFlags(t *testing.T) []string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	defer listener.Close()
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	return []string{"--webhook-port=" + port, "--webhook-registration=url", "--webhook-drain-delay=0s", "--token-secrets=manual"}
}

// startManager returns once the webhook is registered.
func startManager(t *testing.T, cluster *testcluster.ControlPlane, flags []string) *devcluster.Manager {
	t.Helper()
	manager := runManager(t, cluster, flags)
	ready(t, manager, `state="registered"`)
	return manager
}

func runManager(t *testing.T, cluster *testcluster.ControlPlane, flags []string) *devcluster.Manager {
	t.Helper()
	manager, err := testcluster.Binary(t).StartManager(cluster.Cluster, flags...)
	testutil.Must(t, err)
	return manager
}

func createPod(t *testing.T, cluster *testcluster.ControlPlane) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}},
	}
	pod, err := cluster.API.CoreV1().Pods("default").Create(testcluster.Context(t), pod, metav1.CreateOptions{})
	testutil.Must(t, err)
	return pod
}

func untouched(pod *corev1.Pod) bool {
	return pod.Spec.ServiceAccountName == "" && len(pod.Spec.Volumes) == 0
}

// awaitUntouched creates Pods until one comes back as it was sent: nothing announces that
// kube-apiserver has noticed the change.
func awaitUntouched(t *testing.T, cluster *testcluster.ControlPlane, deadline time.Time) {
	t.Helper()
	for !untouched(createPod(t, cluster)) {
		if time.Now().After(deadline) {
			t.Fatal("the webhook is still called")
		}
	}
}
