// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// dialSilent opens a connection and says nothing.
func (s *site) dialSilent(t *testing.T) net.Conn {
	t.Helper()
	conn, err := s.listener.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	synctest.Wait()
	return conn
}

// TestSilentConnectionsEvictTheirOwn has more connections say nothing than may be open, while one
// caller's handshake waits for the processors, another is idle and a third waits for its answer.
func TestSilentConnectionsEvictTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 4
		goOn := make(chan struct{})
		slow := mutates(func(context.Context, *Request, *Response) error { <-goOn; return nil })
		s := start(t, func(c *ServerConfig) {
			c.MaxInFlight = limit
			c.Webhook = NewWebhook(WebhookConfig{Chain: Chain{{Name: "slow", Plugin: slow}}})
		})
		defer s.end(t)
		first, caller := s.dialSilent(t), s.dialSilent(t)
		client := tls.Client(halting{caller, time.Second}, s.tls.Clone()) // the transport changes its own
		shaken := make(chan error, 1)
		go func() { shaken <- client.HandshakeContext(t.Context()) }()
		answer := make(chan string, 1)
		go func() { answer <- s.review(t) }()
		synctest.Wait()

		if got := s.get("/readyz"); got != "200 HTTP/1.1 ok" {
			t.Error(got)
		}
		for range connectionLimits(limit).Open {
			s.dialSilent(t)
		}
		if n, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the first of too many that are silent gets %d bytes and %v, want %v", n, err, io.EOF)
		}
		if err := <-shaken; err != nil {
			t.Errorf("the handshake: %v", err)
		}
		close(goOn)
		if got, want := <-answer, "200 v1 uid=u-1 yes "; got != want {
			t.Errorf("the call: %q, want %q", got, want)
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
