// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"net"
	"net/http"
	"testing"
	"time"
)

// TestSurplusConnections has the one close that has waited for the longest time.
func TestSurplusConnections(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]http.ConnState{"New": http.StateNew, "Idle": http.StateIdle} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c connections
			var first, working net.Conn
			for i := range maxWaiting + 1 {
				conn, other := net.Pipe()
				t.Cleanup(func() { _ = other.Close() })
				t.Cleanup(func() { _ = conn.Close() })
				c.track(conn, state)
				switch i {
				case 0:
					working = conn
					c.track(conn, http.StateActive)
				case 1:
					first = conn
				}
			}
			if isClosed(first) {
				t.Fatal("one was closed while there was room")
			}
			conn, _ := net.Pipe()
			c.track(conn, state)
			if !isClosed(first) {
				t.Error("the oldest one is open")
			}
			if isClosed(working) || isClosed(conn) {
				t.Error("one was closed that has a call, or that has just come")
			}
		})
	}
}

// isClosed asks for what fails on a closed connection alone.
func isClosed(conn net.Conn) bool { return conn.SetDeadline(time.Time{}) != nil }
