// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

const (
	// probePeriod is how often a balancer asks who is ready.
	probePeriod = 50 * time.Millisecond
	// probeLag is how late it knows that somebody is not ready any more.
	probeLag = 500 * time.Millisecond
)

// balancer passes connections on to a replica that was ready a moment ago, as a Service
// does: to the first one of them, so that its end is felt. Connections that it has passed
// on stay.
type balancer struct {
	listener net.Listener
	replicas []string // addresses
	probe    *http.Client
	working  sync.WaitGroup
	stop     context.CancelFunc

	mu   sync.Mutex
	open map[net.Conn]bool
	seen map[string]time.Time // when a replica was ready last
}

// balance listens on the address.
func balance(t *testing.T, address string, replicas ...string) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: listener, replicas: replicas, open: map[net.Conn]bool{}, seen: map[string]time.Time{}, probe: &http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	b.stop = stop
	b.working.Go(b.accept)
	b.working.Go(func() { b.ask(ctx) })
	t.Cleanup(b.close)
	return b
}

// ask asks all replicas again and again.
func (b *balancer) ask(ctx context.Context) {
	ticker := time.NewTicker(probePeriod)
	defer ticker.Stop()
	for {
		for _, address := range b.replicas {
			if b.isReady(ctx, address) {
				b.mu.Lock()
				b.seen[address] = time.Now()
				b.mu.Unlock()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// awaitReady returns once so many replicas are known to be ready.
func (b *balancer) awaitReady(t *testing.T, want int) {
	t.Helper()
	poll(t, "await that the balancer knows the replicas", func(context.Context) error {
		if ready := b.ready(); len(ready) != want {
			return fmt.Errorf("it knows of %v", ready)
		}
		return nil
	})
}

// ready are those who were it a moment ago.
func (b *balancer) ready() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ready []string
	for _, address := range b.replicas {
		if time.Since(b.seen[address]) < probeLag {
			ready = append(ready, address)
		}
	}
	return ready
}

func (b *balancer) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.working.Go(func() { b.pass(conn) })
	}
}

func (b *balancer) pass(conn net.Conn) {
	defer conn.Close()
	backend := b.dial()
	if backend == nil {
		return
	}
	defer backend.Close()
	if !b.keep(conn, backend) {
		return
	}
	defer b.forget(conn, backend)
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(conn, backend) // an end is an end
		_ = conn.Close()
	}()
	_, _ = io.Copy(backend, conn)
	_ = backend.Close()
	<-back
}

// dial connects to the first replica that was ready. If it is gone since, so is the call.
func (b *balancer) dial() net.Conn {
	ready := b.ready()
	if len(ready) == 0 {
		return nil
	}
	conn, err := net.Dial("tcp", ready[0])
	if err != nil {
		return nil
	}
	return conn
}

func (b *balancer) isReady(ctx context.Context, address string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := b.probe.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (b *balancer) keep(conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		return false
	}
	for _, conn := range conns {
		b.open[conn] = true
	}
	return true
}

func (b *balancer) forget(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		delete(b.open, conn)
	}
}

func (b *balancer) close() {
	b.stop()
	_ = b.listener.Close()
	b.mu.Lock()
	for conn := range b.open {
		_ = conn.Close()
	}
	b.open = nil
	b.mu.Unlock()
	b.working.Wait()
}

func at(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
