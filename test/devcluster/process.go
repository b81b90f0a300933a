// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Exit is how a process ended.
type Exit struct {
	// Code is the exit code, or -1 if a signal ended the process.
	Code int
	// Took is the time from the request to end until the process was gone.
	Took time.Duration
}

// process is a running child and what it printed.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *outputLog
	done chan struct{} // closed once the process is gone and cmd.ProcessState is set
}

// start starts path on the host, with env besides this process's own environment. What it prints goes to its
// log and, unless nil, to tee as well.
func (h *host) start(name, path, dir string, args, env []string, tee io.Writer) (*process, error) {
	p := &process{name: name, cmd: exec.Command(path, args...), log: newOutputLog(), done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout = p.log
	if tee != nil {
		p.cmd.Stdout = io.MultiWriter(p.log, tee)
	}
	p.cmd.Stderr = p.cmd.Stdout
	p.cmd.WaitDelay = 5 * time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		// In a process group of its own, a Ctrl-C at the terminal does not reach the
		// child, so that it is us who say in which order things end.
		Setpgid: true,
	}

	started := make(chan error)
	go func() {
		// The kernel delivers Pdeathsig when the *thread* that forked ends, so that
		// thread has to live as long as the child does. That of a host does.
		runtime.LockOSThread()
		var err error
		h.do(func() { err = p.cmd.Start() })
		started <- err
		if err != nil {
			return
		}
		_ = p.cmd.Wait() // ProcessState says how it ended
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// running reports whether the process has not ended yet.
func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stop asks the process to end and waits; after the given time it is killed,
// which is an error.
func (p *process) stop(timeout time.Duration) (Exit, error) {
	begun := time.Now()
	if err := p.signal(syscall.SIGTERM); err != nil {
		return Exit{}, err
	}
	select {
	case <-p.done:
		return p.exit(begun), nil
	case <-time.After(timeout):
	}
	exit, err := p.Kill()
	return exit, errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM and was killed", p.name, timeout), err)
}

// Done is closed when the process has ended, for whatever reason.
func (p *process) Done() <-chan struct{} { return p.done }

// Logs is all that it has printed so far.
func (p *process) Logs() string { return p.log.text() }

// LogTail is the last lines of Logs.
func (p *process) LogTail(lines int) string { return p.log.tail(lines) }

// PID is its ID.
func (p *process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process at once and waits until it is gone.
func (p *process) Kill() (Exit, error) {
	begun := time.Now()
	if err := p.signal(syscall.SIGKILL); err != nil {
		return Exit{}, err
	}
	<-p.done
	return p.exit(begun), nil
}

// signal does nothing, successfully, if the process has ended already.
func (p *process) signal(signal syscall.Signal) error {
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Signal(signal); err != nil && p.running() {
		return fmt.Errorf("send %s to %s: %w", signal, p.name, err)
	}
	return nil
}

func (p *process) exit(begun time.Time) Exit {
	return Exit{Code: p.cmd.ProcessState.ExitCode(), Took: time.Since(begun)}
}

// unexpectedExit describes a process that ended by itself.
func (p *process) unexpectedExit() error {
	return fmt.Errorf("%s ended by itself (%s); the end of its log:\n%s", p.name, p.cmd.ProcessState, p.log.tail(20))
}
