// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"syscall"
	"time"
)

// Child is a process of a test that puts a control plane together by itself. It ends
// with its parent, however that ends.
type Child struct{ process *process }

// StartChild starts path.
func StartChild(name, path, dir string, args []string) (*Child, error) {
	p, err := startProcess(name, path, dir, args)
	if err != nil {
		return nil, err
	}
	return &Child{p}, nil
}

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.process.done }

// Stop sends SIGTERM and, like the kubelet, kills the process after the grace period. That
// is no error. A program of Go prints its goroutines before.
func (c *Child) Stop(grace time.Duration) (Exit, error) {
	begun := time.Now()
	if err := c.process.signal(syscall.SIGTERM); err != nil {
		return Exit{}, err
	}
	select {
	case <-c.process.done:
		return c.process.exit(begun), nil
	case <-time.After(grace):
	}
	// Where it hangs is the last thing in its log.
	if err := c.process.signal(syscall.SIGQUIT); err != nil {
		return Exit{}, err
	}
	select {
	case <-c.process.done:
		return c.process.exit(begun), nil
	case <-time.After(time.Second):
		return c.Kill()
	}
}

// Kill ends the process at once.
func (c *Child) Kill() (Exit, error) { return c.process.kill() }

// Code is the exit code of a process that has ended.
func (c *Child) Code() int { return c.process.cmd.ProcessState.ExitCode() }

// LogTail is the last lines of what it has printed.
func (c *Child) LogTail(lines int) string { return c.process.log.tail(lines) }
