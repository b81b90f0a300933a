// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
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

// outputLog keeps all that a process printed and lets callers await a text in
// it. It keeps everything, because tests look for what must not be there.
type outputLog struct {
	mu      sync.Mutex
	content bytes.Buffer
	grown   chan struct{} // closed and replaced by every write
}

func newOutputLog() *outputLog { return &outputLog{grown: make(chan struct{})} }

// Write implements io.Writer.
func (l *outputLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.grown)
	l.grown = make(chan struct{})
	return l.content.Write(p)
}

func (l *outputLog) text() string {
	text, _ := l.snapshot()
	return text
}

// snapshot returns what there is and a channel that is closed once there is
// more.
func (l *outputLog) snapshot() (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.String(), l.grown
}

// await returns true once the log contains text, and false if ctx or the
// process ends first.
func (l *outputLog) await(ctx context.Context, text string, ended <-chan struct{}) bool {
	for {
		content, grown := l.snapshot()
		if strings.Contains(content, text) {
			return true
		}
		select {
		case <-grown:
		case <-ended:
			return strings.Contains(l.text(), text)
		case <-ctx.Done():
			return false
		}
	}
}

// tail returns the last lines of the log.
func (l *outputLog) tail(lines int) string {
	all := strings.Split(strings.TrimRight(l.text(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// errorLine is how klog begins a line of severity Error or Fatal.
var errorLine = regexp.MustCompile(`(?m)^[EF]\d{4} .*$`)

// cutOff is what client-go logs for a request whose answer is on its way when the
// manager ends, for a renewal of its Lease, and for a list that has not come by then.
var cutOff = regexp.MustCompile(`request\.go:.*"Unexpected error when reading response body" err="context canceled"|` +
	`leaderelection\.go:.*err="context canceled"|` +
	`shared_informer\.go:.*"Unable to sync caches"`)

// Complaints are the lines of severity Error or Fatal in what a manager has printed. What
// its end cuts off is none, nor is what one of the given expressions matches.
func Complaints(printed string, expected ...*regexp.Regexp) []string {
	return slices.DeleteFunc(errorLine.FindAllString(printed, -1), func(line string) bool {
		return slices.ContainsFunc(append(expected, cutOff), func(e *regexp.Regexp) bool { return e.MatchString(line) })
	})
}
