// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/integration/testcluster"
)

// TestRun: "make run" prints what to try and no log, for which it names a file, and doctor finds nothing.
func TestRun(t *testing.T) {
	await.Long(t)
	program, binary := filepath.Join(t.TempDir(), "run"), testcluster.Binary(t).Path
	build := exec.Command("go", "build", "-o", program, "../cmd/run")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	run := exec.CommandContext(testcluster.Context(t), program)
	run.Dir, run.Env = "../..", append(os.Environ(), "SACM_BINARY="+binary)
	run.Cancel = func() error { return run.Process.Signal(syscall.SIGINT) }
	run.Stderr = os.Stderr
	output, err := run.StdoutPipe()
	testutil.Must(t, err)
	testutil.Must(t, run.Start())
	var printed strings.Builder
	var log, kubeconfig string
	for lines := bufio.NewScanner(output); !strings.Contains(printed.String(), "webhook unregister") && lines.Scan(); {
		printed.WriteString(lines.Text() + "\n")
		if _, path, ok := strings.Cut(lines.Text(), "sa-controller-manager: "); ok {
			log = path
		}
		if _, path, ok := strings.Cut(lines.Text(), "export KUBECONFIG="); ok {
			kubeconfig = path
		}
	}
	logged, err := os.ReadFile(log)
	testutil.Must(t, err)
	for _, want := range []string{"Starting", "Serving securely", "--webhook-registration"} {
		if !strings.Contains(string(logged), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	if strings.Contains(string(logged), "cluster-signing") || strings.Contains(printed.String(), "FLAG") {
		t.Errorf("flags without effect are logged, or the log is on the terminal:\n%s", printed.String())
	}
	doctor := exec.Command(binary, "doctor", "--grace=1s")
	doctor.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if report, err := doctor.CombinedOutput(); err != nil || !strings.Contains(string(report), "Findings: 0.") {
		t.Errorf("%v\n%s", err, report)
	}
	testutil.Must(t, run.Process.Signal(syscall.SIGINT))
	if _, err := io.Copy(io.Discard, output); err != nil {
		t.Error(err)
	}
	if err := run.Wait(); err != nil {
		t.Error(err)
	}
	for _, path := range []string{log, kubeconfig} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left behind, or %v", path, err)
		}
	}
}
