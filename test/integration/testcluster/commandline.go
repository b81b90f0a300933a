// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// Output is what a command printed, and its exit code.
type Output struct {
	Code           int
	Stdout, Stderr string
}

// Run runs the binary with the given standard input. Its output goes to the canary.
func Run(t *testing.T, input string, args ...string) Output {
	t.Helper()
	return RunCommand(t, exec.CommandContext(Context(t), Binary(t).Path, args...), input)
}

// RunCommand is Run of another program, with the environment of cmd.
func RunCommand(t *testing.T, cmd *exec.Cmd, input string) Output {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	got := Output{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
	Leaks.Add("output of "+strings.Join(cmd.Args[1:3], " "), got.Stderr+got.Stdout)
	return got
}

// ExpectCode ends the test unless the command has exited with the code.
func (p Output) ExpectCode(t *testing.T, code int) Output {
	t.Helper()
	if p.Code != code {
		t.Fatalf("exit code %d, want %d\n%s\n%s", p.Code, code, p.Stdout, p.Stderr)
	}
	return p
}

// ExpectTexts checks that every text was printed.
func (p Output) ExpectTexts(t *testing.T, texts ...string) Output {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.Stdout+p.Stderr, text) {
			t.Errorf("%q is not in\n%s\n%s", text, p.Stdout, p.Stderr)
		}
	}
	return p
}
