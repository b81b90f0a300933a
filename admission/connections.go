// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// newPatience is how long a connection that brings no call is waited for, once no
// further ones are accepted. Callers dial when they have one to make.
const newPatience = time.Second

// Silent connections would cost memory without end, so one too many closes the one that has
// waited for the longest time. A caller that means it brings its call within milliseconds, but
// kube-apiserver dials as often at once as it creates Pods, and then a handshake waits for
// the processors.
const (
	// maxWaiting is how many connections may be idle, and how many new for longer than
	// handshakeGrace.
	maxWaiting = 128
	// maxNew is how many may be new. Each takes some 30 KiB.
	maxNew = 256
	// handshakeGrace is half of what kube-apiserver waits for by default.
	handshakeGrace = 5 * time.Second
)

// connections knows which connections may bring a call or have one. The zero value is
// ready to use.
type connections struct {
	mu      sync.Mutex
	busy    map[net.Conn]http.ConnState // new or active
	waiting map[net.Conn]wait           // new or idle
	changed chan struct{}               // closed at the next change, if somebody waits
}

// wait is a connection without a call.
type wait struct {
	state http.ConnState
	since time.Time
}

// track is a ConnState hook of http.Server.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.note(conn, state)
	if surplus := c.surplus(conn, state); surplus != nil {
		closeAtOnce(surplus)
	}
}

// surplus keeps the list of those that wait and returns which one has to go, if any.
func (c *connections) surplus(conn net.Conn, state http.ConnState) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, conn)
	if state != http.StateNew && state != http.StateIdle {
		return nil
	}
	if c.waiting == nil {
		c.waiting = map[net.Conn]wait{}
	}
	now := time.Now()
	c.waiting[conn] = wait{state, now}
	oldest, count := c.oldest(state)
	room := maxWaiting
	if state == http.StateNew && now.Sub(c.waiting[oldest].since) < handshakeGrace {
		room = maxNew
	}
	if count <= room {
		return nil
	}
	delete(c.waiting, oldest)
	return oldest
}

// oldest is the connection that has been in the state for the longest time, of so many.
func (c *connections) oldest(state http.ConnState) (oldest net.Conn, count int) {
	for conn, waits := range c.waiting {
		if waits.state != state {
			continue
		}
		count++
		if oldest == nil || waits.since.Before(c.waiting[oldest].since) {
			oldest = conn
		}
	}
	return oldest, count
}

// closeAtOnce does not say goodbye as TLS does, which waits for who does not read.
func closeAtOnce(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close() // one that is gone already is closed
}

func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy == nil {
		c.busy = map[net.Conn]http.ConnState{}
	}
	delete(c.busy, conn)
	if state == http.StateNew || state == http.StateActive {
		c.busy[conn] = state
	}
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// settle returns once every connection is idle or closed, or ctx ends. It is for when no
// further ones are accepted: those that are still new after newPatience are closed.
func (c *connections) settle(ctx context.Context) {
	late := time.NewTimer(newPatience)
	defer late.Stop()
	for {
		changed := c.await()
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-late.C:
			c.closeNew()
		case <-ctx.Done():
			return
		}
	}
}

// await returns nil if nobody is busy, and otherwise what is closed at the next change.
func (c *connections) await() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.busy) == 0 {
		return nil
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

func (c *connections) closeNew() {
	for _, conn := range c.allNew() {
		_ = conn.Close() // one that is gone already is closed
	}
}

func (c *connections) allNew() []net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []net.Conn
	for conn, state := range c.busy {
		if state == http.StateNew {
			found = append(found, conn)
		}
	}
	return found
}
