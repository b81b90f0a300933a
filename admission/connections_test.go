// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestSurplusConnections has the one close that has waited for the longest time.
func TestSurplusConnections(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		state  http.ConnState
		pause  time.Duration // before the last one
		room   int
	}{
		"New":     {"kube-apiserver creates that many Pods at once", http.StateNew, 0, maxNew},
		"NewLong": {"they would have brought their calls by now", http.StateNew, handshakeGrace, maxWaiting},
		"Idle":    {"nobody keeps that many", http.StateIdle, 0, maxWaiting},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var c connections
				come := func() net.Conn {
					conn, other := net.Pipe()
					t.Cleanup(func() { _ = other.Close() })
					t.Cleanup(func() { _ = conn.Close() })
					time.Sleep(time.Microsecond)
					c.track(conn, tc.state)
					return conn
				}
				working := come()
				c.track(working, http.StateActive)
				first := come()
				for range tc.room - 1 {
					come()
				}
				if isClosed(first) {
					t.Fatalf("%s: one was closed while there was room", tc.reason)
				}
				time.Sleep(tc.pause)
				last := come()
				if !isClosed(first) {
					t.Errorf("%s: the oldest one is open", tc.reason)
				}
				if isClosed(working) || isClosed(last) {
					t.Error("one was closed that has a call, or that has just come")
				}
			})
		})
	}
}

// TestSurplusActive has the one close whose last call began first.
func TestSurplusActive(t *testing.T) {
	t.Parallel()
	const most = maxWaiting + 10
	cases := map[string]struct {
		reason string
		pause  time.Duration // before the last one
		room   int
	}{
		"Slow": {"their calls would have been answered by now", handshakeGrace, most},
		"Many": {"kube-apiserver waits for each of them", 0, 2 * most},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := connections{maxActive: most}
				come := func(state http.ConnState) net.Conn {
					conn, other := net.Pipe()
					t.Cleanup(func() { _ = other.Close() })
					t.Cleanup(func() { _ = conn.Close() })
					time.Sleep(time.Microsecond)
					c.track(conn, state)
					return conn
				}
				idle := come(http.StateIdle)
				c.called(idle) // by a call that has just been answered
				busy, first := come(http.StateActive), come(http.StateActive)
				for range tc.room - 2 {
					come(http.StateActive)
				}
				if isClosed(first) {
					t.Fatalf("%s: one was closed while there was room", tc.reason)
				}
				time.Sleep(tc.pause)
				c.called(busy)
				last := come(http.StateActive)
				if !isClosed(first) {
					t.Errorf("%s: the one whose call began first is open", tc.reason)
				}
				if isClosed(idle) || isClosed(busy) || isClosed(last) {
					t.Error("one was closed that has no call, or a new one")
				}
			})
		})
	}
}

// isClosed asks for what fails on a closed connection alone.
func isClosed(conn net.Conn) bool { return conn.SetDeadline(time.Time{}) != nil }
