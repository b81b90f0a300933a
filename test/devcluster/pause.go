// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import "syscall"

// PID is the manager's process, for who looks into /proc.
func (m *Manager) PID() int { return m.process.cmd.Process.Pid }

// Pause has the manager stand still as a machine does that is suspended; its connections
// stay open. Stop does nothing to one that is paused: Resume it first.
func (m *Manager) Pause() error { return m.process.signal(syscall.SIGSTOP) }

// Resume has a paused manager go on.
func (m *Manager) Resume() error { return m.process.signal(syscall.SIGCONT) }
