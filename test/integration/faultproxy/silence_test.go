// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// still is how long the tests check that nothing happens.
const still = 200 * time.Millisecond

// TestSilence wants a connection that has fallen silent to say nothing, not even that it is
// over, whatever the server does, until the silence ends.
func TestSilence(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		silence func(*Proxy) func()
		after   bool // a connection that comes later is silent as well
	}{
		"those that are open": {silence: (*Proxy).Silence},
		"all":                 {reason: "as when a cable is cut", silence: (*Proxy).SilenceAll, after: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			before := dialProxy(t, f.proxy)
			wantAnswer(t, before, false)
			end := tc.silence(f.proxy)
			wantAnswer(t, before, true)
			f.proxy.server.CloseClientConnections()
			wantSilence(t, before)

			later, err := tryProxy(t, f.proxy)
			if (err != nil) != tc.after {
				t.Fatalf("a connection that comes later: %v; %s", err, tc.reason)
			}
			if served := len(f.proxy.Requests(Any)); served != 1 {
				t.Errorf("%d requests have arrived, want the one from before", served)
			}
			end()
			if _, err := io.ReadAll(before); err == nil || isTimeout(err) {
				t.Errorf("after the end: %v, want a reset", err)
			}
			if later != nil {
				wantAnswer(t, later, false)
			}
			wantAnswer(t, dialProxy(t, f.proxy), false)
			end()
		})
	}
}

// TestCloseEndsSilence would hang or leave goroutines behind otherwise.
func TestCloseEndsSilence(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn := dialProxy(t, f.proxy)
	end := f.proxy.SilenceAll()
	f.proxy.Close()
	if _, err := io.ReadAll(conn); err == nil || isTimeout(err) {
		t.Errorf("after the end: %v, want a reset", err)
	}
	end()
}

// dialProxy has TLS and HTTP/1.1 on a connection of its own.
func dialProxy(t *testing.T, proxy *Proxy) net.Conn {
	t.Helper()
	conn, err := tryProxy(t, proxy)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func tryProxy(t *testing.T, proxy *Proxy) (net.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*still)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(ctx, "tcp", proxy.server.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, nil
}

// wantAnswer sends a request, which is answered or, on a silent connection, not.
func wantAnswer(t *testing.T, conn net.Conn, silent bool) {
	t.Helper()
	if _, err := io.WriteString(conn, "GET /version HTTP/1.1\r\nHost: proxy\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if silent {
		wantSilence(t, conn)
		return
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Errorf("no whole answer: %v", err)
	}
}

// wantSilence waits for anything to be heard, also an end.
func wantSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(still)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 4096)); !isTimeout(err) {
		t.Errorf("heard %d bytes, %v; want silence", n, err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
