// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// wires is a listener whose connections can fall silent.
type wires struct {
	net.Listener

	mu     sync.Mutex
	open   map[*wire]struct{}
	silent []*wire
}

func newWires(listener net.Listener) *wires {
	return &wires{Listener: listener, open: map[*wire]struct{}{}}
}

// Accept implements net.Listener.
func (l *wires) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: accepted, all: l, over: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[w] = struct{}{}
	return w, nil
}

// silence silences the open connections.
func (l *wires) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.open {
		if w.silent.CompareAndSwap(false, true) {
			l.silent = append(l.silent, w)
		}
	}
}

// end resets those that are silent.
func (l *wires) end() {
	l.mu.Lock()
	silent := l.silent
	l.silent = nil
	l.mu.Unlock()
	for _, w := range silent {
		w.reset()
	}
}

func (l *wires) forget(w *wire) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, w)
}

// wire is a connection that can become silent, for good.
type wire struct {
	net.Conn

	all    *wires
	silent atomic.Bool
	over   chan struct{} // closed once the server or the silence has done with it
	once   sync.Once
}

// Read implements net.Conn. What has come on a silent connection is kept back.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if !w.silent.Load() {
		return n, err
	}
	<-w.over
	return 0, net.ErrClosed
}

// Write implements net.Conn. It succeeds on a silent connection, as it does while a kernel
// waits for acknowledgements that do not come.
func (w *wire) Write(p []byte) (int, error) {
	if w.silent.Load() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// Close implements net.Conn. The end of a silent connection is not heard before that of the
// silence.
func (w *wire) Close() error {
	w.all.forget(w)
	if !w.silent.Load() {
		return w.Conn.Close()
	}
	w.finish()
	return w.SetReadDeadline(time.Now()) // for who reads
}

// reset ends a silent connection with RST, as a restarted machine would.
func (w *wire) reset() {
	w.all.forget(w)
	if tcp, ok := w.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // one that is gone already needs no reset
	}
	_ = w.Conn.Close()
	w.finish()
}

func (w *wire) finish() { w.once.Do(func() { close(w.over) }) }
