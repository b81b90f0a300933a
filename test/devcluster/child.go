// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"syscall"
	"time"
)

// Child is a process of a test that puts a control plane together by itself. It ends
// with its parent, however that ends.
type Child struct{ *process }

// StartChild starts path.
func StartChild(name, path, dir string, args []string) (*Child, error) {
	p, err := (*host)(nil).start(name, path, dir, args, nil, nil)
	return &Child{p}, err
}

// Stop sends SIGTERM and, like the kubelet, kills the process after the grace period. That
// is no error. A program of Go prints its goroutines before: where it hangs is the last thing in its log.
func (c *Child) Stop(grace time.Duration) (Exit, error) {
	begun := time.Now()
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, grace}, {syscall.SIGQUIT, time.Second}} {
		if err := c.signal(step.signal); err != nil {
			return Exit{}, err
		}
		select {
		case <-c.done:
			return c.exit(begun), nil
		case <-time.After(step.wait):
		}
	}
	return c.Kill()
}

// Code is the exit code of a process that has ended.
func (c *Child) Code() int { return c.cmd.ProcessState.ExitCode() }
