// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

// balancer passes connections on to a replica that is ready, as a Service does. It
// looks for one when a connection comes; connections that it has passed on stay.
type balancer struct {
	listener net.Listener
	replicas []string // addresses
	probe    *http.Client
	working  sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]bool
	calls int
}

// balance listens on the address.
func balance(t *testing.T, address string, replicas ...string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: listener, replicas: replicas, open: map[net.Conn]bool{}, probe: &http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}}
	b.working.Go(b.accept)
	t.Cleanup(b.close)
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

// dial connects to the first replica, in turn, that is ready.
func (b *balancer) dial() net.Conn {
	b.mu.Lock()
	b.calls++
	first := b.calls
	b.mu.Unlock()
	for i := range b.replicas {
		address := b.replicas[(first+i)%len(b.replicas)]
		if !b.ready(address) {
			continue
		}
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn
		}
	}
	return nil
}

func (b *balancer) ready(address string) bool {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://"+address+"/readyz", nil)
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
