// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connlimit limits the connections of a server: a flood of connections costs a known amount
// of memory and goroutines, and evicts mostly itself.
//
// A connection is in one of four states: no bytes received; bytes received but no call yet; idle
// after a call; calls in progress. Beyond the limit, the state with the most connections loses the
// connection that has been in it the longest. So silent connections, slow handshakes, idle
// connections and slow calls do not evict connections in other states, unless those are as many.
//
// The server wraps its listener, and brackets each call by Conn.Begin and Conn.End. All methods are
// safe for concurrent use.
package connlimit

import (
	"container/list"
	"net"
	"sync"
	"sync/atomic"
)

// Limits are the limits of a server.
type Limits struct {
	// Open is the maximum of open connections. One more evicts another.
	Open int
	// Callers, unless zero, is the maximum of connections that have made a call. These are never
	// evicted, and the first call on a further one is rejected: so the first caller survives a
	// flood of calls.
	Callers int
	// Evicted, unless nil, is called for each connection that another one evicts.
	Evicted func()
}

// Accepted returns the maximum of connections including closed ones that the server still holds.
// Further ones wait to be accepted: otherwise a flood would leave goroutines behind faster than
// they end.
func (l Limits) Accepted() int { return l.Open + l.Open/4 }

type state int

const (
	silent  state = iota // no bytes received
	started              // bytes received, no call yet
	idle
	calling
	states
)

// Limiter enforces the limits of a server.
type Limiter struct {
	limits Limits
	// places holds one entry for each connection that the server still holds.
	places chan struct{}

	mu sync.Mutex
	// queues hold the open connections of each state, in the order in which they entered it; a
	// further call enters calling again.
	queues [states]list.List
	ending bool
}

// New returns a Limiter without connections.
func New(limits Limits) *Limiter {
	return &Limiter{limits: limits, places: make(chan struct{}, limits.Accepted())}
}

// Wrap returns a listener whose connections are of type *Conn.
func (l *Limiter) Wrap(listener net.Listener) net.Listener { return limited{listener, l} }

type limited struct {
	net.Listener

	limiter *Limiter
}

// Accept implements net.Listener.
func (l limited) Accept() (net.Conn, error) {
	l.limiter.places <- struct{}{}
	accepted, err := l.Listener.Accept()
	if err != nil {
		<-l.limiter.places
		return nil, err
	}
	conn := &Conn{Conn: accepted, limiter: l.limiter}
	if surplus := l.limiter.add(conn); surplus != nil {
		if surplus != conn && l.limiter.limits.Evicted != nil {
			l.limiter.limits.Evicted()
		}
		surplus.hangUp()
	}
	return conn, nil
}

// add adds a new connection and returns the one to close for it, if any.
func (l *Limiter) add(conn *Conn) (surplus *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	conn.enter(silent)
	switch {
	case l.ending:
		surplus = conn
	case l.open() > l.limits.Open:
		surplus = l.longest()
	default:
		return nil
	}
	surplus.leave()
	return surplus
}

// open returns the number of open connections. The caller holds mu.
func (l *Limiter) open() int {
	sum := 0
	for i := range l.queues {
		sum += l.queues[i].Len()
	}
	return sum
}

// longest returns the connection to evict. The caller holds mu.
func (l *Limiter) longest() *Conn {
	among := l.queues[:]
	if l.limits.Callers > 0 {
		among = among[:idle]
	}
	most := &among[0]
	for i := range among {
		if among[i].Len() > most.Len() {
			most = &among[i]
		}
	}
	return most.Front().Value.(*Conn)
}

// CloseNew closes the connections without a call, and all that are accepted later.
func (l *Limiter) CloseNew() {
	l.mu.Lock()
	l.ending = true
	var surplus []*Conn
	for _, queue := range []*list.List{&l.queues[silent], &l.queues[started]} {
		for queue.Len() > 0 {
			conn := queue.Front().Value.(*Conn)
			conn.leave()
			surplus = append(surplus, conn)
		}
	}
	l.mu.Unlock()
	for _, conn := range surplus {
		conn.hangUp()
	}
}

// AllIdle reports whether no open connection is new or has calls in progress.
func (l *Limiter) AllIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open() == l.queues[idle].Len()
}

// Conn is an accepted connection.
type Conn struct {
	net.Conn

	limiter  *Limiter
	heard    atomic.Bool
	released sync.Once

	// The Limiter's mu guards the fields below.

	state state
	place *list.Element // in the queue of its state, nil once it is closed
	calls int
}

// enter moves the connection to the end of the queue of a state. The caller holds mu.
func (c *Conn) enter(to state) {
	c.leave()
	c.state, c.place = to, c.limiter.queues[to].PushBack(c)
}

func (c *Conn) leave() {
	if c.place != nil {
		c.limiter.queues[c.state].Remove(c.place)
		c.place = nil
	}
}

// Begin records a call and reports whether it is within the limits. If so, End must be called once
// it is answered.
func (c *Conn) Begin() bool {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.place == nil {
		return false
	}
	if c.state < idle && l.limits.Callers > 0 && l.queues[idle].Len()+l.queues[calling].Len() >= l.limits.Callers {
		return false
	}
	c.calls++
	c.enter(calling)
	return true
}

// End records that a call is answered.
func (c *Conn) End() {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.calls--
	if c.calls == 0 && c.place != nil {
		c.enter(idle)
	}
}

// Read implements net.Conn.
func (c *Conn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if n > 0 && !c.heard.Swap(true) {
		c.hear()
	}
	return n, err
}

func (c *Conn) hear() {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	if c.place != nil && c.state == silent {
		c.enter(started)
	}
}

// Close implements net.Conn. The server calls it when it no longer uses the connection.
func (c *Conn) Close() error {
	c.limiter.mu.Lock()
	c.leave()
	c.limiter.mu.Unlock()
	defer c.released.Do(func() { <-c.limiter.places })
	return c.Conn.Close()
}

// hangUp closes a connection that the server still holds, without TLS's close alert, which would
// block on a peer that does not read. The caller does not hold mu, because closing waits for
// readers.
func (c *Conn) hangUp() { _ = c.Conn.Close() } // the peer may have closed it already
