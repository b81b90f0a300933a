// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"net"
	"sync"
)

// listener tells connections which of those that it accepts have sent something.
type listener struct {
	net.Listener
	among *connections
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &listened{Conn: conn, among: l.among}, nil
}

// listened is one that was accepted.
type listened struct {
	net.Conn
	among *connections
	once  sync.Once
}

// Read implements net.Conn.
func (l *listened) Read(into []byte) (int, error) {
	n, err := l.Conn.Read(into)
	if n > 0 {
		l.once.Do(func() { l.among.heard(l) })
	}
	return n, err
}
