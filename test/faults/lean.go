// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// brokenClients lean on a server at the same time, for leanFor.
	brokenClients = 500
	leanFor       = 6 * time.Second
	// floodFor is how long as many connections as the machine has, floodSize at most, say
	// nothing.
	floodFor  = 3 * time.Second
	floodSize = 10_000
)

// leanOn has broken clients come again and again, each as one of the kinds, and then silent
// connections. It returns how often a client came, and how many connections there were.
func leanOn(ctx context.Context, network, address string, kinds []func(context.Context, string) error) (tried, open int) {
	tried = breakOn(ctx, address, kinds)
	ctx, stop := context.WithTimeout(ctx, floodFor)
	defer stop()
	open = flood(ctx, network, address)
	<-ctx.Done()
	return tried, open
}

func breakOn(ctx context.Context, address string, kinds []func(context.Context, string) error) int {
	ctx, cancel := context.WithTimeout(ctx, leanFor)
	defer cancel()
	var tried atomic.Int64
	var leaning sync.WaitGroup
	for i := range brokenClients {
		leaning.Go(func() {
			for ctx.Err() == nil {
				tried.Add(1)
				_ = kinds[i%len(kinds)](ctx, address) // it is broken
				sleep(ctx, time.Second)
			}
		})
	}
	leaning.Wait()
	return int(tried.Load())
}

// flood opens connections that say nothing and keeps them until ctx ends. It returns how
// many there were.
func flood(ctx context.Context, network, address string) int {
	open := 0
	dialer := net.Dialer{Timeout: time.Second}
	for range connections(floodSize) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			break
		}
		open++
		context.AfterFunc(ctx, func() { _ = conn.Close() })
	}
	return open
}

// connections is how many this process may open and the machine has: three quarters of
// its files.
func connections(most int) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(min(uint64(most), limit.Cur/4*3)) //nolint:gosec // G115: most at most
}
