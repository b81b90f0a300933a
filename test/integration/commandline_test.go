// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// printed is what a command left.
type printed struct {
	code           int
	stdout, stderr string

	took   time.Duration
	maxRSS int64 // KiB
}

// command runs the binary with what it reads from standard input. What it prints goes to the canary.
func command(t *testing.T, input string, args ...string) printed {
	t.Helper()
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary.Path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	begin := time.Now()
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	got := printed{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String(), took: time.Since(begin)}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		got.maxRSS = usage.Maxrss
	}
	shared.canary.add("output of "+strings.Join(args[:2], " "), got.stderr+got.stdout)
	return got
}

// want ends the test unless the command exits with the code.
func (p printed) want(t *testing.T, code int) printed {
	t.Helper()
	if p.code != code {
		t.Fatalf("exit code %d, want %d\n%s\n%s", p.code, code, p.stdout, p.stderr)
	}
	return p
}

// says wants every text to be printed.
func (p printed) says(t *testing.T, texts ...string) printed {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.stdout+p.stderr, text) {
			t.Errorf("%q is not in\n%s\n%s", text, p.stdout, p.stderr)
		}
	}
	return p
}
