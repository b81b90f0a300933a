// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// pipes is a listener without a network, so that a bubble of synctest has its own time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func listenPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	ours, theirs := buffer(client), buffer(server)
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, errors.Join(errors.New("connection refused"), ours.Close(), theirs.Close())
	}
}

// buffered is one end of a pipe whose writes do not wait for the reader, as those of a
// real connection do not. Without it two ends that say goodbye at the same time wait
// for each other.
type buffered struct {
	net.Conn
	queue  chan []byte
	closed chan struct{}
	once   sync.Once
}

func buffer(conn net.Conn) *buffered {
	b := &buffered{Conn: conn, queue: make(chan []byte, 1000), closed: make(chan struct{})}
	go b.pump()
	return b
}

func (b *buffered) Write(p []byte) (int, error) {
	select {
	case <-b.closed:
		return 0, net.ErrClosed
	case b.queue <- bytes.Clone(p):
		return len(p), nil
	}
}

// Close sends what is queued, for as long as the other end reads it.
func (b *buffered) Close() error {
	b.once.Do(func() {
		close(b.closed)
		_ = b.Conn.SetReadDeadline(time.Unix(0, 0))
		_ = b.Conn.SetWriteDeadline(time.Now().Add(time.Second))
	})
	return nil
}

func (b *buffered) SetDeadline(at time.Time) error { return b.SetReadDeadline(at) }

func (b *buffered) SetWriteDeadline(time.Time) error { return nil }

func (b *buffered) pump() {
	defer b.Conn.Close()
	for {
		select {
		case p := <-b.queue:
			_, _ = b.Conn.Write(p)
			continue
		default:
		}
		select {
		case p := <-b.queue:
			_, _ = b.Conn.Write(p)
		case <-b.closed:
			if len(b.queue) == 0 {
				return
			}
		}
	}
}
