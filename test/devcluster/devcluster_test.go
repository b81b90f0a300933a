// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// childVariable makes the test binary play the parent in TestParentDies.
const childVariable = "DEVCLUSTER_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		startAndWait()
	}
	goleak.VerifyTestMain(m)
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := start(t, Options{SigningKey: ECDSA})
	client, err := cluster.Client()
	if err != nil {
		t.Fatal(err)
	}

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	if got := reviewedUser(t, client, requestToken(t, client)); got != "system:serviceaccount:kept:someone" {
		t.Errorf("a token of the API server's own key authenticates as %q", got)
	}

	cluster.SetAPIServerFlag("v", "1")
	if err := cluster.RestartAPIServer(ctx); err != nil {
		t.Fatalf("restart: %v", err)
	}
	if !strings.Contains(cluster.APIServerLog(), `FLAG: --v="1"`) {
		t.Error("the restarted API server did not get the new flag")
	}
	if err := cluster.KillEtcd(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.StartEtcd(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.AwaitAPIServer(ctx); err != nil {
		t.Fatalf("await the API server after etcd was killed: %v", err)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("the namespace did not survive: %v", err)
	}

	metrics, err := cluster.APIServerMetrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if metrics.Sum("apiserver_request_total", Labels{"resource": "namespaces", "verb": "GET"}) < 1 {
		t.Error("the API server's metrics do not count our GET")
	}
	checkRBAC(t, cluster)

	manager, err := cluster.StartKubeControllerManager()
	if err != nil {
		t.Fatal(err)
	}
	if err := manager.Ready(ctx); err != nil {
		t.Fatalf("await kube-controller-manager: %v", err)
	}
	if err := manager.AwaitLog(ctx, "Caches are synced"); err != nil {
		t.Error(err)
	}

	if err := cluster.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	awaitNothingLeft(t, cluster.Dir())
}

// TestStartFails checks that the reason is in the error and that nothing is left.
func TestStartFails(t *testing.T) {
	t.Parallel()
	output := newOutputLog()
	_, err := Start(t.Context(), Options{
		Log:            output,
		APIServerFlags: map[string][]string{"no-such-flag": {"1"}},
	})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("want an error that quotes kube-apiserver, got: %v", err)
	}
}

// TestParentDies checks what cannot be checked from within: that nothing is left
// of a cluster whose process ends without calling Stop.
func TestParentDies(t *testing.T) {
	t.Parallel()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), childVariable+"=1")
	parent.Stderr = os.Stderr
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("read the child's directory: %v", err)
	}
	dir := strings.TrimSpace(line)
	if len(processesNaming(t, dir)) < 3 {
		t.Fatalf("want etcd, kube-apiserver and the janitor to run, got %v", processesNaming(t, dir))
	}
	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	awaitNothingLeft(t, dir)
}

// startAndWait starts a cluster, prints its directory and never returns.
func startAndWait() {
	cluster, err := Start(context.Background(), Options{})
	if err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
		os.Exit(1)
	}
	_, _ = io.WriteString(os.Stdout, cluster.Dir()+"\n")
	select {}
}

func start(t *testing.T, options Options) *Cluster {
	t.Helper()
	cluster, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	return cluster
}

func requestToken(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	accounts := client.CoreV1().ServiceAccounts("kept")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "someone"}}
	if _, err := accounts.Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create an account: %v", err)
	}
	request, err := accounts.CreateToken(t.Context(), "someone", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("request a token: %v", err)
	}
	return request.Status.Token
}

func reviewedUser(t *testing.T, client kubernetes.Interface, token string) string {
	t.Helper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := client.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("review a token: %v", err)
	}
	return review.Status.User.Username
}

// checkRBAC checks that an identity of no group may do nothing.
func checkRBAC(t *testing.T, cluster *Cluster) {
	t.Helper()
	_, config, err := cluster.Identity("nobody")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Secrets("kept").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("want a refusal that names the user, got: %v", err)
	}
}

// awaitNothingLeft waits until the directory and every process that names it are
// gone. Nothing announces the end of another process's child, hence the ticker.
func awaitNothingLeft(t *testing.T, dir string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := os.Stat(dir)
		processes := processesNaming(t, dir)
		if errors.Is(err, os.ErrNotExist) && len(processes) == 0 {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("left behind: directory %s (%v), processes %v", dir, err, processes)
		}
	}
}

// processesNaming returns the command lines that contain text.
func processesNaming(t *testing.T, text string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		// A process may be gone since the directory was listed.
		if content, _ := os.ReadFile(file); strings.Contains(string(content), text) {
			found = append(found, strings.ReplaceAll(string(content), "\x00", " "))
		}
	}
	return found
}
