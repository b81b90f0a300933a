// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

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
		results = append(results, result{
			code:    read(t, fmt.Sprintf("%s/%d.code", out, i)),
			printed: read(t, fmt.Sprintf("%s/%d.out", out, i)),
		})
	}
	return results
}

// read reads a file that is missing if the shell did not get that far.
func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(content)
}
