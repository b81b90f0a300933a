// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/tls"
	"math"
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

// connections knows all that are open. The zero value is ready to use.
type connections struct {
	// maxActive is how many may have calls, and have had no new one for longer than
	// handshakeGrace. Twice as many may be active. Zero is any number.
	maxActive int

	mu      sync.Mutex
	open    map[net.Conn]phase
	changed chan struct{} // closed at the next change, if somebody waits
}

// phase is what a connection is in and since when.
type phase struct {
	state http.ConnState // new, active or idle
	since time.Time      // if it is active, the last call
}

// busy tells whether it may bring a call or has one.
func (p phase) busy() bool { return p.state != http.StateIdle }

// track is a ConnState hook of http.Server.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	if surplus := c.note(conn, state); surplus != nil {
		closeAtOnce(surplus)
	}
}

// note keeps the list and returns which connection has to go, if any.
func (c *connections) note(conn net.Conn, state http.ConnState) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.open, conn)
		return nil
	}
	if c.open == nil {
		c.open = map[net.Conn]phase{}
	}
	c.open[conn] = phase{state, time.Now()}
	if len(c.open) <= c.room(state, handshakeGrace) {
		return nil // as it mostly is
	}
	return c.surplus(state)
}

// called notes that one which is active has brought a further call. One of HTTP/2 that
// kube-apiserver keeps using may never be idle, and is not the one that has to go.
func (c *connections) called(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is, ok := c.open[conn]; ok && is.state == http.StateActive {
		is.since = time.Now()
		c.open[conn] = is
	}
}

// surplus is the connection that has been in the state for the longest time, if there are
// too many of those. A call takes milliseconds, so that the one whose last call began first
// sends its body slowly or does not read its answer.
func (c *connections) surplus(state http.ConnState) net.Conn {
	var oldest net.Conn
	count := 0
	for conn, is := range c.open {
		if is.state != state {
			continue
		}
		count++
		if oldest == nil || is.since.Before(c.open[oldest].since) {
			oldest = conn
		}
	}
	if count <= c.room(state, time.Since(c.open[oldest].since)) {
		return nil
	}
	delete(c.open, oldest)
	return oldest
}

// room is how many may be in the state, where the oldest is of that age.
func (c *connections) room(state http.ConnState, age time.Duration) int {
	young := age < handshakeGrace
	switch {
	case state == http.StateActive && c.maxActive == 0:
		return math.MaxInt
	case state == http.StateActive && young:
		return 2 * c.maxActive
	case state == http.StateActive:
		return c.maxActive
	case state == http.StateNew && young:
		return maxNew
	default:
		return maxWaiting
	}
}

// closeAtOnce does not say goodbye as TLS does, which waits for who does not read.
func closeAtOnce(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close() // one that is gone already is closed
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
	if len(c.selected(phase.busy)) == 0 {
		return nil
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

func (c *connections) closeNew() {
	c.mu.Lock()
	found := c.selected(func(p phase) bool { return p.state == http.StateNew })
	c.mu.Unlock()
	for _, conn := range found {
		_ = conn.Close() // one that is gone already is closed
	}
}

// selected are those in such a phase. The caller holds mu.
func (c *connections) selected(such func(phase) bool) []net.Conn {
	var found []net.Conn
	for conn, is := range c.open {
		if such(is) {
			found = append(found, conn)
		}
	}
	return found
}
