// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external

import (
	"errors"
	"net"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// A kube-apiserver has one connection. What others open is bounded, because each costs memory and goroutines as long as it is
// there, and so does each call that it has under way.
const (
	// maxNew is how many connections may be there that have not made a call. One more closes the oldest of them: who means it
	// calls within milliseconds, and silent ones must not keep a kube-apiserver out that starts anew.
	maxNew = 32
	// maxKnown is how many may be there that have. The next one is refused: who came first stays, so that no flood of calls can
	// push a kube-apiserver out.
	maxKnown = 16
	// maxOpen is how many may be there with those that were closed and that gRPC has not let go of yet. The next one waits to be
	// accepted: else each of a flood would leave goroutines behind faster than they end.
	maxOpen = 2 * (maxNew + maxKnown)
	// leastIdle is when one that makes no further call gives its place to the next, at the earliest.
	leastIdle = time.Minute
)

// errCrowded refuses a call on a connection for which there is no place.
var errCrowded = errors.New("as many other connections are in use as may be")

// connections knows all that are open.
type connections struct {
	clock clock.PassiveClock
	// idleAfter is when one that makes no further call gives its place to the next.
	idleAfter time.Duration
	// room has an element for each that gRPC has not let go of, and for the next one.
	room chan struct{}

	mu        sync.Mutex
	open      map[*connection]struct{}
	dismissed bool
}

// newConnections has room for kube-apiservers that may do nothing but fetch the keys, once in each refreshHint.
func newConnections(clock clock.PassiveClock, refreshHint time.Duration) *connections {
	return &connections{clock: clock, idleAfter: max(leastIdle, 2*refreshHint), room: make(chan struct{}, maxOpen), open: map[*connection]struct{}{}}
}

// connection is one of them. What can change is guarded by the mutex of all.
type connection struct {
	*net.UnixConn

	among *connections
	known bool      // an allowed user has made a call on it
	since time.Time // the last call or, before the first one, when it came

	letGo sync.Once
}

// Close implements net.Conn. It is for gRPC, once it has done with the connection.
func (c *connection) Close() error {
	c.among.mu.Lock()
	delete(c.among.open, c)
	c.among.mu.Unlock()
	defer c.letGo.Do(func() { <-c.among.room })
	return c.UnixConn.Close()
}

// bounded is a listener whose connections are among those.
type bounded struct {
	net.Listener

	among *connections
}

// Accept implements net.Listener.
func (b bounded) Accept() (net.Conn, error) {
	b.among.room <- struct{}{} // there is some soon, as fewer than half of maxOpen may stay
	accepted, err := b.Listener.Accept()
	if err != nil {
		<-b.among.room
		return nil, err
	}
	return b.among.add(accepted.(*net.UnixConn)), nil
}

// add takes a new one in and closes the one that is too many.
func (c *connections) add(accepted *net.UnixConn) *connection {
	conn := &connection{UnixConn: accepted, among: c, since: c.clock.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dismissed {
		c.drop(conn)
		return conn
	}
	c.open[conn] = struct{}{}
	if oldest, count := c.oldest(false); count > maxNew {
		c.drop(oldest)
	}
	return conn
}

// called notes a call of an allowed user. It is errCrowded if there is no place for who makes it.
func (c *connections) called(conn *connection) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if !conn.known {
		if oldest, count := c.oldest(true); count >= maxKnown {
			if now.Sub(oldest.since) < c.idleAfter {
				return errCrowded
			}
			c.drop(oldest)
		}
	}
	conn.known, conn.since = true, now
	return nil
}

// dismiss hangs up on all that have not made a call, and on who comes later: gRPC would wait for their first words before it ends.
func (c *connections) dismiss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dismissed = true
	for conn := range c.open {
		if !conn.known {
			c.drop(conn)
		}
	}
}

// oldest is the one that has said nothing for the longest time, of those that are known or of those that are not, and how many
// there are. The caller holds mu.
func (c *connections) oldest(known bool) (oldest *connection, count int) {
	for conn := range c.open {
		if conn.known != known {
			continue
		}
		count++
		if oldest == nil || conn.since.Before(oldest.since) {
			oldest = conn
		}
	}
	return oldest, count
}

// drop hangs up. The caller holds mu.
func (c *connections) drop(conn *connection) {
	delete(c.open, conn)
	_ = conn.UnixConn.Close() // one that is gone already is closed
}
