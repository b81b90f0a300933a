// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import "syscall"

// PID returns the manager's process ID.
func (m *Manager) PID() int { return m.process.cmd.Process.Pid }

// Pause stops the manager with SIGSTOP, like a suspended machine; its connections stay open. Stop
// does not end a paused manager: Resume it first.
func (m *Manager) Pause() error { return m.process.signal(syscall.SIGSTOP) }

// Resume continues a paused manager.
func (m *Manager) Resume() error { return m.process.signal(syscall.SIGCONT) }
