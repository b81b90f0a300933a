// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"container/list"
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

// Connections that are no use would cost memory without end, so one too many closes the one that
// has waited for the longest time among those that are as far. A caller that means it brings its
// call within milliseconds, but kube-apiserver dials as often at once as it creates Pods, and then
// a handshake waits for the processors. Those of which no byte has been read are counted by
// themselves: however many come, they close nobody of whom one has.
const (
	// maxWaiting is how many connections may be idle, and how many silent or shaking hands for
	// longer than handshakeGrace.
	maxWaiting = 128
	// maxNew is how many may be silent, and how many may shake hands. Each takes some 30 KiB.
	maxNew = 256
	// handshakeGrace is half of what kube-apiserver waits for by default.
	handshakeGrace = 5 * time.Second
)

// phase is what a connection is in.
type phase int

const (
	silent  phase = iota // new, and nothing came
	shaking              // new, and something did
	active
	idle
	phases = iota
)

// phaseOf is that of a connection in that state which is open.
func phaseOf(state http.ConnState) phase {
	switch state {
	case http.StateActive:
		return active
	case http.StateIdle:
		return idle
	default:
		return silent
	}
}

// connections knows all that are open. The zero value is ready to use.
type connections struct {
	// maxActive is how many may have calls, and have had no new one for longer than
	// handshakeGrace. Twice as many may be active. Zero is any number.
	maxActive int

	mu   sync.Mutex
	open map[net.Conn]*member // by what TLS is spoken over
	// queues have the members of each phase. The one that is in it for the longest time is in
	// front; among those that are active, the one whose last call came first.
	queues  [phases]list.List
	changed chan struct{} // closed at the next change, if somebody waits
}

// member is one connection.
type member struct {
	conn  net.Conn
	phase phase
	since time.Time
	place *list.Element // in the queue of its phase
}

// bare is what TLS is spoken over, if it is.
func bare(conn net.Conn) net.Conn {
	if secured, ok := conn.(*tls.Conn); ok {
		return secured.NetConn()
	}
	return conn
}

// track is a ConnState hook of http.Server.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	var surplus []net.Conn
	c.mu.Lock()
	c.tell()
	if state == http.StateClosed || state == http.StateHijacked {
		c.forget(bare(conn))
	} else {
		surplus = c.move(bare(conn), phaseOf(state))
	}
	c.mu.Unlock()
	closeAll(surplus)
}

// heard notes that one which is new has sent something.
func (c *connections) heard(conn net.Conn) {
	var surplus []net.Conn
	c.mu.Lock()
	if m, ok := c.open[conn]; ok && m.phase == silent {
		surplus = c.move(conn, shaking)
	}
	c.mu.Unlock()
	closeAll(surplus)
}

// called notes that one which is active has brought a further call. One of HTTP/2 that
// kube-apiserver keeps using may never be idle, and is not the one that has to go.
func (c *connections) called(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m, ok := c.open[bare(conn)]; ok && m.phase == active {
		m.since = time.Now()
		c.queues[active].MoveToBack(m.place)
	}
}

// tell wakes who waits for a change. The caller holds mu, as for all that follow.
func (c *connections) tell() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// move puts a connection at the end of those in the phase, and returns which have to go.
func (c *connections) move(conn net.Conn, to phase) []net.Conn {
	c.forget(conn)
	if c.open == nil {
		c.open = map[net.Conn]*member{}
	}
	queue := &c.queues[to]
	m := &member{conn: conn, phase: to, since: time.Now()}
	m.place, c.open[conn] = queue.PushBack(m), m
	var surplus []net.Conn
	for {
		first := queue.Front().Value.(*member)
		if queue.Len() <= c.room(to, time.Since(first.since)) {
			return surplus
		}
		c.forget(first.conn)
		surplus = append(surplus, first.conn)
	}
}

func (c *connections) forget(conn net.Conn) {
	if m, ok := c.open[conn]; ok {
		c.queues[m.phase].Remove(m.place)
		delete(c.open, conn)
	}
}

// room is how many may be in the phase, where the first is in it for that long. A call takes
// milliseconds, so that the one whose last call came first sends its body slowly or does not
// read its answer.
func (c *connections) room(in phase, first time.Duration) int {
	young := first < handshakeGrace
	switch {
	case in == active && c.maxActive == 0:
		return math.MaxInt
	case in == active && young:
		return 2 * c.maxActive
	case in == active:
		return c.maxActive
	case in != idle && young:
		return maxNew
	default:
		return maxWaiting
	}
}

// closeAll does not say goodbye as TLS does, which waits for who does not read.
func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		_ = conn.Close() // one that is gone already is closed
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

// await returns nil if all are idle, and otherwise what is closed at the next change.
func (c *connections) await() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) == c.queues[idle].Len() {
		return nil
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// closeNew closes those that have brought no call. The server then has them forgotten.
func (c *connections) closeNew() {
	c.mu.Lock()
	var found []net.Conn
	for conn, m := range c.open {
		if m.phase == silent || m.phase == shaking {
			found = append(found, conn)
		}
	}
	c.mu.Unlock()
	closeAll(found)
}
