// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signertest

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ConnectAs is Connect by a process of another user, in the eyes of the kernel. Only root may do
// that, and the other user needs the right to connect: the thread that connects keeps its groups
// and nothing else.
func ConnectAs(path string, uid int) (*Remote, error) {
	return connect(path, func(_ context.Context, path string) (net.Conn, error) { return dialAs(path, uid) })
}

// dialAs connects on a thread of its own: the raw system call changes the user of one thread, which
// ends with its goroutine.
func dialAs(path string, uid int) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	dialed := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			dialed <- result{err: fmt.Errorf("become user %d: %w", uid, errno)}
			return
		}
		conn, err := dialHere(path)
		dialed <- result{conn, err}
	}()
	r := <-dialed
	return r.conn, r.err
}

// dialHere connects on the calling thread, which a net.Dialer need not do.
func dialHere(path string) (net.Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	defer func() { _ = file.Close() }() // the connection has a copy
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return net.FileConn(file)
}
