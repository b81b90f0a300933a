// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// newPatience is how long a connection that brings no call is waited for, once no
// further ones are accepted. Callers dial when they have one to make.
const newPatience = time.Second

// connections knows which connections may bring a call or have one. The zero value is
// ready to use.
type connections struct {
	mu      sync.Mutex
	busy    map[net.Conn]http.ConnState // new or active
	changed chan struct{}               // closed at the next change, if somebody waits
}

// track is a ConnState hook of http.Server.
func (c *connections) track(conn net.Conn, state http.ConnState) {
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
