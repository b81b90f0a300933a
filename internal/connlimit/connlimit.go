// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connlimit bounds the connections of a server: a flood of them costs a known amount of
// memory and goroutines, and evicts its own kind.
//
// A connection is in one of four states: nothing has been read from it; something has been, but no
// call has come; it is idle after a call; it has calls under way. Beyond the limit that connection
// is closed which is longest in the state that most are in. So neither silent connections nor slow
// handshakes nor idle connections nor slow calls evict one in another state, unless that state has
// just as many.
//
// The server wraps its listener, and brackets each call by Conn.Begin and Conn.End. All methods may
// be used by several goroutines.
package connlimit

import (
	"container/list"
	"net"
	"sync"
	"sync/atomic"
)

// Limits are those of a server.
type Limits struct {
	// Open is how many connections may be open. One more evicts another.
	Open int
	// Callers, unless zero, is how many of them may have made a call. Callers are never evicted,
	// and a call of a further one is rejected: so the first caller outlasts a flood of calls.
	Callers int
}

// Accepted is how many connections there are at most, with those that are closed and that the
// server has not let go of yet. The next one waits to be accepted: else a flood would leave
// goroutines behind faster than they end.
func (l Limits) Accepted() int { return l.Open + l.Open/4 }

type state int

const (
	silent  state = iota // nothing has been read
	started              // something has been, but no call has come
	idle
	calling
	states
)

// Limiter keeps the connections of a server within its limits.
type Limiter struct {
	limits Limits
	// places holds one entry for each connection that the server has not let go of.
	places chan struct{}

	mu sync.Mutex
	// queues hold the open connections of each state, the one that is longest in it in front.
	// Among those with calls, that is the one whose last call began first.
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
		surplus.hangUp()
	}
	return conn, nil
}

// add takes a new connection in and returns the one that is to be closed for it.
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

// open is how many connections are open. The caller holds mu.
func (l *Limiter) open() int {
	sum := 0
	for i := range l.queues {
		sum += l.queues[i].Len()
	}
	return sum
}

// longest is the connection to evict. The caller holds mu.
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

// CloseNew closes the connections that have made no call, and all that are accepted later.
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

// AllIdle reports whether no open connection is new or has calls under way.
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

	// What follows is guarded by the Limiter's mu.

	state state
	place *list.Element // in the queue of its state, nil once it is closed
	calls int
}

// enter puts the connection at the end of those in the state. The caller holds mu.
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

// Begin notes that a call has come, and reports whether there is a place for it. If so, End is to
// be called once it is answered.
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

// End notes that a call is answered.
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

// Close implements net.Conn. The server calls it once it has done with the connection.
func (c *Conn) Close() error {
	c.limiter.mu.Lock()
	c.leave()
	c.limiter.mu.Unlock()
	defer c.released.Do(func() { <-c.limiter.places })
	return c.Conn.Close()
}

// hangUp closes a connection that the server still holds. It does not say goodbye as TLS does,
// which waits for a peer that does not read. mu is not held, because closing waits for readers.
func (c *Conn) hangUp() { _ = c.Conn.Close() } // the peer may have closed it already
