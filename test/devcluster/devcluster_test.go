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
)

// childVariable makes the test binary play the parent in TestParentDies.
const childVariable = "DEVCLUSTER_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		startAndWait()
	}
	goleak.VerifyTestMain(m)
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
