// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package balancer passes connections on to replicas of the webhook that are ready, as a
// Service and the readiness probes of a kubelet do.
//
// Lifecycle: Start, then Close, which ends all connections.
//
// Concurrency: all methods may be called from any goroutine.
package balancer

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Balancer passes connections on to replicas that were ready a moment ago, one after the other. Connections end whose
// replica is not ready any more.
type Balancer struct {
	listener    net.Listener
	replicas    []string // addresses
	period, lag time.Duration
	probe       *http.Client
	working     sync.WaitGroup
	stop        context.CancelFunc

	mu   sync.Mutex
	open map[net.Conn]string  // to whom it leads
	seen map[string]time.Time // when a replica was ready last
	next int                  // counts connections
}

// Start listens on the address. It asks each replica once in a period whether it is ready, and knows lag later that it is
// not any more.
func Start(address string, replicas []string, period, lag time.Duration) (*Balancer, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("start a balancer: %w", err)
	}
	b := &Balancer{listener: listener, replicas: replicas, period: period, lag: lag, open: map[net.Conn]string{},
		seen: map[string]time.Time{}, probe: &http.Client{
			Timeout: time.Second,
			//nolint:gosec // G402: it asks for readiness and sends nothing
			Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		}}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.working.Go(b.accept)
	for _, address := range replicas {
		b.working.Go(func() { b.ask(ctx, address) })
	}
	return b, nil
}

// ask asks a replica again and again.
func (b *Balancer) ask(ctx context.Context, address string) {
	ticker := time.NewTicker(b.period)
	defer ticker.Stop()
	for {
		if b.isReady(ctx, address) {
			b.mu.Lock()
			b.seen[address] = time.Now()
			b.mu.Unlock()
		}
		b.cutUnready()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Ready are those who were it a moment ago.
func (b *Balancer) Ready() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready()
}

func (b *Balancer) ready() []string {
	var ready []string
	for _, address := range b.replicas {
		if time.Since(b.seen[address]) < b.lag {
			ready = append(ready, address)
		}
	}
	return ready
}

func (b *Balancer) cutUnready() {
	b.mu.Lock()
	defer b.mu.Unlock()
	ready := b.ready()
	for conn, address := range b.open {
		if !slices.Contains(ready, address) {
			_ = conn.Close() // an end is an end
		}
	}
}

func (b *Balancer) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.working.Go(func() { b.pass(conn) })
	}
}

func (b *Balancer) pass(conn net.Conn) {
	defer conn.Close()
	address, backend := b.dial()
	if backend == nil {
		return
	}
	defer backend.Close()
	if !b.keep(address, conn, backend) {
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

// dial connects to a replica that was ready.
func (b *Balancer) dial() (string, net.Conn) {
	ready := b.Ready()
	b.mu.Lock()
	b.next++
	first := b.next
	b.mu.Unlock()
	dialer := net.Dialer{Timeout: b.lag}
	for i := range ready {
		address := ready[(first+i)%len(ready)]
		if conn, err := dialer.DialContext(context.Background(), "tcp", address); err == nil {
			return address, conn
		}
	}
	return "", nil
}

func (b *Balancer) isReady(ctx context.Context, address string) bool {
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

func (b *Balancer) keep(address string, conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		return false
	}
	for _, conn := range conns {
		b.open[conn] = address
	}
	return true
}

func (b *Balancer) forget(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		delete(b.open, conn)
	}
}

// Close ends all connections and stops listening.
func (b *Balancer) Close() {
	b.stop()
	_ = b.listener.Close() // what matters is that Accept returns
	b.mu.Lock()
	for conn := range b.open {
		_ = conn.Close()
	}
	b.open = nil
	b.mu.Unlock()
	b.working.Wait()
	b.probe.CloseIdleConnections()
}
