// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package byhand runs the commands of the documentation as they stand there,
// against a real control plane. It holds tests only.
//
// A page is a list of fenced blocks. A block "sh" is run by bash, all of a page in one
// shell and one empty directory. A block "text" right after it is what it must print.
package byhand

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

func TestWebhookByHand(t *testing.T) {
	shell := newShell(t, testcluster.New(t, devcluster.Options{}))
	steps := readPage(t, "../../docs/webhook-by-hand.md")
	blocks := make([]string, 0, len(steps))
	compared := 0
	for _, step := range steps {
		blocks = append(blocks, step.commands)
	}
	for i, got := range shell.run(t, blocks...) {
		step := steps[i]
		refused := step.prints != nil && strings.HasPrefix(*step.prints, "Error")
		if (got.code != "0") != refused {
			t.Fatalf("exit code %q of\n%s\nit printed:\n%s\nthe manager's log:\n%s", got.code, step.commands, got.printed,
				read(t, shell.dir+"/manager.log"))
		}
		if step.prints == nil {
			continue
		}
		compared++
		diff := cmp.Diff(*step.prints, got.printed)
		testutil.Expect(t, diff == "", "the page is wrong about what this prints (-page +printed):\n%s\n%s", step.commands, diff)
	}
	testutil.Expect(t, compared >= 4, "%d blocks of the page say what they print, want 4 at least", compared)
}

// ready waits for a manager and a line of its log.
func ready(t *testing.T, manager *devcluster.Manager, log string) {
	t.Helper()
	ctx := testcluster.Context(t)
	if err := manager.Ready(ctx); err != nil {
		t.Fatalf("%v\n%s", err, manager.LogTail(30))
	}
	if err := manager.AwaitLog(ctx, log); err != nil {
		t.Fatalf("%v\n%s", err, manager.LogTail(30))
	}
}

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

// step is one block of commands and what they must print; nil if the page does not say.
type step struct {
	commands string
	prints   *string
}

// readPage reads the fenced blocks of a Markdown page.
func readPage(t *testing.T, path string) []step {
	t.Helper()
	content := testutil.Get(os.ReadFile(path))(t)
	var steps []step
	language, block := "", ""
	for line := range strings.Lines(string(content)) {
		fence, fenced := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fenced && language == "" && fence == "":
			t.Fatalf("%s has a fence that does not say what is in it", path)
		case fenced && language == "":
			language, block = fence, ""
		case !fenced:
			block += line
		case language == "sh test":
			steps = append(steps, step{commands: block})
			language = ""
		case language == "text" && len(steps) > 0:
			prints := block
			steps[len(steps)-1].prints = &prints
			language = ""
		default:
			t.Fatalf("%s has a block of %s that no test runs", path, language)
		}
	}
	return steps
}

// shell is what a reader of a page has: programs, a cluster, a directory.
type shell struct {
	dir         string
	environment []string
	timeout     time.Duration // of a whole page
}

func newShell(t *testing.T, cluster *testcluster.ControlPlane) *shell {
	t.Helper()
	path := []string{link(t, "sa-controller-manager", testcluster.Binary(t).Path)}
	if kubectl, err := devcluster.ControlPlaneBinary("kubectl"); err == nil {
		path = append(path, link(t, "kubectl", kubectl))
	}
	path = append(path, os.Getenv("PATH"))
	return &shell{dir: t.TempDir(), timeout: 2 * time.Minute, environment: append(os.Environ(),
		"KUBECONFIG="+cluster.Kubeconfig(), "PATH="+strings.Join(path, ":"))}
}

// link makes a directory in which a program has the name that people call it by.
func link(t *testing.T, name, program string) string {
	t.Helper()
	dir := t.TempDir()
	testutil.Must(t, os.Symlink(program, filepath.Join(dir, name)))
	return dir
}

// result is what a block of commands did.
type result struct{ code, printed string }

// run runs blocks in one shell. The code of a block is that of the last command that failed, because no reader
// runs on. Whatever they leave running ends with the test.
func (s *shell) run(t *testing.T, blocks ...string) []result {
	t.Helper()
	out := t.TempDir()
	var script strings.Builder
	for i, block := range blocks {
		fmt.Fprintf(&script, "failed=0; trap 'failed=$?' ERR\n{\n%s\n} >%[2]s/%[3]d.out 2>&1\n"+
			"code=$?; echo -n $((failed ? failed : code)) >%[2]s/%[3]d.code\n", block, out, i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), s.timeout)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash", "-c", script.String())
	bash.Dir, bash.Env = s.dir, s.environment
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	bash.Cancel = func() error { return syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) }
	testutil.Must(t, bash.Start())
	t.Cleanup(func() { _ = syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) })
	_ = bash.Wait() // every block has a code of its own
	var results []result
	for i := range blocks {
		results = append(results,
			result{code: read(t, fmt.Sprintf("%s/%d.code", out, i)), printed: read(t, fmt.Sprintf("%s/%d.out", out, i))})
	}
	return results
}

// read reads a file that is missing if the shell did not get that far.
func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	testutil.Require(t, err == nil || os.IsNotExist(err), "%v", err)
	return string(content)
}

// The command is taken from the help, so that the help is right when it is needed.
func TestBreakGlassWithKubectlAlone(t *testing.T) {
	await.Long(t)
	cluster := testcluster.New(t, devcluster.Options{})
	shell := newShell(t, cluster)
	command := kubectlCommand(t, shell)
	flags := webhookFlags(t)
	first := startManager(t, cluster, flags)
	pod := createPod(t, cluster)
	testutil.Require(t, pod.Spec.ServiceAccountName == "default", "serviceaccount %q: the webhook is not in", pod.Spec.ServiceAccountName)

	begun := time.Now()
	got := shell.run(t, command)[0]
	testutil.Require(t, got.code == "0", "%s\nexit code %s: %s", command, got.code, got.printed)
	awaitUntouched(t, cluster, begun.Add(10*time.Second))
	t.Logf("the webhook is out after %s", time.Since(begun).Round(time.Millisecond))

	// It stays out: also for a leader that has never seen it registered.
	_, err := first.Stop()
	testutil.Expect(t, err == nil, "%v", err)
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
	testutil.Require(t, strings.Contains(command, "00-sa-controller-manager"), "no command in the help:\n%s", help)
	return command
}

// webhookFlags register a webhook on a port on which nothing listens now.
func webhookFlags(t *testing.T) []string {
	t.Helper()
	listener := testutil.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
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
	return testutil.Get(testcluster.Binary(t).StartManager(cluster.Cluster, flags...))(t)
}

func createPod(t *testing.T, cluster *testcluster.ControlPlane) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}},
	}
	return testutil.Get(cluster.API.CoreV1().Pods("default").Create(testcluster.Context(t), pod, metav1.CreateOptions{}))(t)
}

func untouched(pod *corev1.Pod) bool {
	return pod.Spec.ServiceAccountName == "" && len(pod.Spec.Volumes) == 0
}

// awaitUntouched creates Pods until one comes back as it was sent: nothing announces that
// kube-apiserver has noticed the change.
func awaitUntouched(t *testing.T, cluster *testcluster.ControlPlane, deadline time.Time) {
	t.Helper()
	for !untouched(createPod(t, cluster)) {
		testutil.Require(t, !time.Now().After(deadline), "the webhook is still called")
	}
}
