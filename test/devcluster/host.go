// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// host looks like another machine to a control plane: it has its own name
// and its own loopback interface, and nothing leads from one to the other but what
// forward carries. It is a thread in namespaces of its own, which processes that it starts
// inherit. A nil host is this machine.
type host struct {
	work  chan func()
	ended chan struct{}

	mu        sync.Mutex
	listeners []net.Listener
	carrying  sync.WaitGroup
}

// newHost needs the rights of root; without them the error is os.ErrPermission.
func newHost(name string) (*host, error) {
	h := &host{work: make(chan func()), ended: make(chan struct{})}
	made := make(chan error)
	go func() {
		defer close(h.ended)
		// Never unlocked: the thread ends with this goroutine, because no other goroutine could
		// use it any more.
		runtime.LockOSThread()
		err := isolate(name)
		made <- err
		if err != nil {
			return
		}
		for f := range h.work {
			f()
		}
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("make host %s: %w", name, err)
	}
	return h, nil
}

// isolate gives the calling thread a name and a loopback interface.
func isolate(name string) error {
	if err := unix.Unshare(unix.CLONE_NEWUTS | unix.CLONE_NEWNET); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return os.NewSyscallError("sethostname", err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(socket) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return os.NewSyscallError("ioctl", unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo))
}

// do calls f on the host and waits.
func (h *host) do(f func()) {
	if h == nil {
		f()
		return
	}
	done := make(chan struct{})
	h.work <- func() { defer close(done); f() }
	<-done
}

func (h *host) listen(address string) (listener net.Listener, err error) {
	h.do(func() { listener, err = net.Listen("tcp", address) })
	return listener, err
}

// dial opens the socket on the host's thread, which is where it belongs to from then on.
func (h *host) dial(address string) (connection net.Conn, err error) {
	h.do(func() { connection, err = (&net.Dialer{}).DialContext(context.Background(), "tcp", address) })
	return connection, err
}

// forward connects a loopback port of one host with the same port of another.
// It ends when h does.
func (h *host) forward(port int, from, to *host) error {
	listener, err := from.listen(address(port))
	if err != nil {
		return fmt.Errorf("forward port %d: %w", port, err)
	}
	h.mu.Lock()
	h.listeners = append(h.listeners, listener)
	h.mu.Unlock()
	h.carrying.Go(func() {
		for {
			caller, err := listener.Accept()
			if err != nil {
				return
			}
			h.carrying.Go(func() { carry(caller, to, address(port)) })
		}
	})
	return nil
}

// carry copies both ways until one side is done.
func carry(caller net.Conn, to *host, address string) {
	defer caller.Close()
	callee, err := to.dial(address)
	if err != nil {
		return // the caller sees a connection that ends, as with a server on its way out
	}
	defer callee.Close()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{caller, callee}, {callee, caller}} {
		go func() {
			_, _ = pair[0].(*net.TCPConn).ReadFrom(pair[1])
			done <- struct{}{}
		}()
	}
	<-done
	_, _ = caller.Close(), callee.Close()
	<-done
}

// close ends the host. Its processes must have ended: they die with its thread.
func (h *host) close() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, listener := range h.listeners {
		errs = append(errs, listener.Close())
	}
	h.carrying.Wait()
	close(h.work)
	<-h.ended
	return errors.Join(errs...)
}

// Join starts another kube-apiserver on the same etcd, with the same files and flags, on
// a host of its own: its hostname is the given name, and its loopback interface is another
// one, so that what listens on 127.0.0.1 here does not listen there. The Cluster that it
// returns is that host. Its clients work from here, and managers that are started beside
// it run there.
//
// It is an error that is os.ErrPermission if the process may not make such a host. The
// result has to be stopped before c, which keeps etcd.
func (c *Cluster) Join(ctx context.Context, name string) (*Cluster, error) {
	made, err := newHost(name)
	if err != nil {
		return nil, err
	}
	joined := &Cluster{
		options: c.options, dir: c.path(name), joined: true, host: made,
		etcdPort: c.etcdPort, etcdPeerPort: c.etcdPeerPort, etcd: c.etcd,
		servingCA: c.servingCA, clientCA: c.clientCA, proxyCA: c.proxyCA,
	}
	joined.options.APIServerFlags = maps.Clone(c.options.APIServerFlags)
	if err := joined.join(ctx, c); err != nil {
		return nil, errors.Join(fmt.Errorf("start a control plane on host %s: %w", name, err), joined.Stop())
	}
	return joined, nil
}

// join makes what it needs to start, which is the files of the first one, a port, and an
// identity for clients, and starts.
func (c *Cluster) join(ctx context.Context, first *Cluster) (err error) {
	if err := c.copyFiles(first.dir); err != nil {
		return err
	}
	if c.apiServerPort, err = FreePort(); err != nil {
		return err
	}
	if c.admin, err = c.writeIdentity(c.Kubeconfig(), "devcluster-admin", "system:masters"); err != nil {
		return err
	}
	if err := errors.Join(c.host.forward(c.etcdPort, c.host, nil), c.host.forward(c.apiServerPort, nil, c.host)); err != nil {
		return err
	}
	if c.options.BeforeAPIServer != nil {
		if err := c.options.BeforeAPIServer(c); err != nil {
			return err
		}
	}
	return c.StartAPIServer(ctx)
}

// copyFiles copies keys and certificates, which all hosts of a control plane share.
func (c *Cluster) copyFiles(from string) error {
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	for _, pattern := range []string{"*.crt", "*.key"} {
		files, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(c.path(filepath.Base(file)), content, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
