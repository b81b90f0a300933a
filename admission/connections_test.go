// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/tls"
	"errors"
	"io"
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
		speaks bool
		pause  time.Duration // before the last one
		room   int
		left   int // of those that came
	}{
		"Silent":         {"kube-apiserver creates that many Pods at once", http.StateNew, false, 0, maxNew, maxNew},
		"SilentLong":     {"they would have brought their calls by now", http.StateNew, false, handshakeGrace, maxWaiting, maxWaiting},
		"Shaking":        {"kube-apiserver creates that many Pods at once", http.StateNew, true, 0, maxNew, maxNew},
		"ShakingLong":    {"they would have brought their calls by now", http.StateNew, true, handshakeGrace, maxWaiting, maxWaiting},
		"ShakingLongAll": {"all of the first have grown old", http.StateNew, true, handshakeGrace, maxNew, maxWaiting},
		"Idle":           {"nobody keeps that many", http.StateIdle, false, 0, maxWaiting, maxWaiting},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var c connections
				come := func() net.Conn {
					conn := comes(t, &c, tc.state)
					if tc.speaks {
						c.heard(conn)
					}
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
				if left := len(c.open) - 1; left != tc.left {
					t.Errorf("%d are open beside the one that has a call, want %d", left, tc.left)
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
				come := func(state http.ConnState) net.Conn { return comes(t, &c, state) }
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

// TestSilentCloseNobody has a caller shake hands while more come than may be silent: its
// handshake waits for the processors, and theirs never begins.
func TestSilentCloseNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, nil)
		defer s.end(t)
		dial := func() net.Conn {
			conn, err := s.listener.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			synctest.Wait()
			return conn
		}
		caller, first := dial(), dial()
		client := tls.Client(halting{caller, time.Second}, s.tls)
		shaken := make(chan error, 1)
		go func() { shaken <- client.HandshakeContext(t.Context()) }()
		synctest.Wait()
		for range maxNew {
			dial()
		}
		if n, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the first of too many that are silent gets %d bytes and %v, want %v", n, err, io.EOF)
		}
		if err := <-shaken; err != nil {
			t.Errorf("one that shook hands meanwhile: %v", err)
		}
	})
}

// halting sends the first byte, and what follows it later.
type halting struct {
	net.Conn
	pause time.Duration
}

func (h halting) Write(from []byte) (int, error) {
	if _, err := h.Conn.Write(from[:1]); err != nil {
		return 0, err
	}
	time.Sleep(h.pause)
	n, err := h.Conn.Write(from[1:])
	return n + 1, err
}

// comes has a connection come that is in that state. No two come at the same time.
func comes(t *testing.T, c *connections, state http.ConnState) net.Conn {
	t.Helper()
	conn, other := net.Pipe()
	t.Cleanup(func() { _ = other.Close() })
	t.Cleanup(func() { _ = conn.Close() })
	time.Sleep(time.Microsecond)
	c.track(conn, state)
	return conn
}

// isClosed asks for what fails on a closed connection alone.
func isClosed(conn net.Conn) bool { return conn.SetDeadline(time.Time{}) != nil }
