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

// Balancer passes connections on to replicas that are ready, one after the other. Connections end whose
// replica is not ready any more.
type Balancer struct {
	listener net.Listener
	probe    *http.Client
	working  sync.WaitGroup
	stop     context.CancelFunc

	mu    sync.Mutex
	ready []string            // addresses; the first one gets the next connection
	open  map[net.Conn]string // to whom it leads
}

// Start listens on the address. It asks each replica once in a period whether it is ready. One that has not answered
// within lag is not.
func Start(address string, replicas []string, period, lag time.Duration) (*Balancer, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("start a balancer: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &Balancer{listener: listener, stop: stop, open: map[net.Conn]string{}, probe: &http.Client{
		Timeout: lag,
		//nolint:gosec // G402: it asks for readiness and sends nothing
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}}
	b.working.Go(b.accept)
	for _, address := range replicas {
		b.working.Go(func() {
			ticker := time.NewTicker(period)
			defer ticker.Stop()
			for ctx.Err() == nil {
				b.note(address, b.isReady(ctx, address))
				select {
				case <-ctx.Done():
				case <-ticker.C:
				}
			}
		})
	}
	return b, nil
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

// note notes whether a replica is ready, and ends the connections of one that is not.
func (b *Balancer) note(address string, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch known := slices.Index(b.ready, address); {
	case ready && known < 0:
		b.ready = append(b.ready, address)
	case !ready && known >= 0:
		b.ready = slices.Delete(b.ready, known, known+1)
		b.cut(address)
	}
}

// cut ends connections: those to a replica, or all of them.
func (b *Balancer) cut(to string) {
	for conn, address := range b.open {
		if to == "" || to == address {
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

// pass connects to the next replica, and copies both ways until one side is done.
func (b *Balancer) pass(conn net.Conn) {
	defer conn.Close()
	b.mu.Lock()
	if len(b.ready) == 0 {
		b.mu.Unlock()
		return
	}
	address := b.ready[0]
	b.ready = append(b.ready[1:], address)
	b.open[conn] = address
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.open, conn)
		b.mu.Unlock()
	}()
	backend, err := (&net.Dialer{Timeout: b.probe.Timeout}).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return
	}
	defer backend.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(conn, backend)
		_ = conn.Close()
	}()
	_, _ = io.Copy(backend, conn) // until conn is closed
	_ = backend.Close()
	<-back
}

// Close ends all connections and stops listening.
func (b *Balancer) Close() {
	b.stop()
	_ = b.listener.Close() // what matters is that Accept returns
	b.mu.Lock()
	b.ready = nil
	b.cut("")
	b.mu.Unlock()
	b.working.Wait()
	b.probe.CloseIdleConnections()
}
