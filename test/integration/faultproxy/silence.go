// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"net"
	"sync"
	"sync/atomic"
)

// wires is a listener whose connections can fall silent.
type wires struct {
	net.Listener

	mu  sync.Mutex
	all []*wire
}

// Accept implements net.Listener.
func (l *wires) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: accepted, over: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, w)
	return w, nil
}

// silence silences the open connections.
func (l *wires) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.all {
		w.silent.Store(true)
	}
}

// end closes those that are silent.
func (l *wires) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.all {
		if w.silent.Load() {
			w.once.Do(func() { close(w.over) })
			_ = w.Conn.Close() // the server may have done so
		}
	}
}

// wire is a connection that can become silent, for good.
type wire struct {
	net.Conn

	silent atomic.Bool
	once   sync.Once
	over   chan struct{} // closed once its silence has ended
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
	if w.silent.Load() {
		return nil
	}
	return w.Conn.Close()
}
