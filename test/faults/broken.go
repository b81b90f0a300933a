// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"sa-controller-manager/test/await"
)

const (
	// brokenClients come to the webhook at the same time, for brokenFor.
	brokenClients = 500
	brokenFor     = 6 * time.Second
	// Then for floodFor as many connections as the machine has, floodSize at most, say nothing.
	floodFor  = 3 * time.Second
	floodSize = 10_000
	// handshake is how a record of TLS begins that is part of one (RFC 8446, section 5.1).
	handshake = 0x16
	// dripped is how many bytes make a slow client.
	dripped = 10
)

// brokenClient sends some bytes at once and others one by one, ten a second.
type brokenClient struct {
	name  string
	plain bool // without TLS
	sends string
	drips string
}

func brokenKinds() []brokenClient {
	const length = 8 << 20
	head := fmt.Sprintf("POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", length)
	return []brokenClient{
		// A whole record: the rest of half a one would be waited for.
		{name: "garbage for TLS", plain: true, sends: strings.Repeat(string([]byte{handshake, 0x03, 0xff}), 2000)},
		{name: "slow header", drips: head},
		{name: "slow body", sends: head, drips: strings.Repeat("{", 1000)},
		// It holds all that there is for large bodies (docs/reliability.md, "Limits").
		{name: "large body that stalls", sends: head + strings.Repeat(" ", length-1000)},
	}
}

// visit returns once the server has had enough, or ctx ends. struck reports that the client came as far as its attack, and
// answer is how what the server said begins.
func (b brokenClient) visit(ctx context.Context, address string) (struck bool, answer []byte) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false, nil
	}
	end := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer end()
	defer func() { _ = conn.Close() }() // the server may have done so
	if !b.plain {
		secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // G402: what it sends is garbage
		if err := secured.HandshakeContext(ctx); err != nil {
			return false, nil
		}
		conn = secured
	}
	heard := make(chan []byte, 1)
	go func() {
		begin := make([]byte, len("HTTP/1.1 4"))
		n, _ := io.ReadFull(conn, begin) // less is an answer too
		heard <- begin[:n]
	}()
	_, err = io.WriteString(conn, b.sends)
	sent := 0
	for ; err == nil && sent < len(b.drips) && await.Sleep(ctx, 100*time.Millisecond); sent++ {
		_, err = io.WriteString(conn, b.drips[sent:sent+1])
	}
	answer = <-heard
	if b.drips != "" {
		return sent > dripped, answer
	}
	return ctx.Err() == nil, answer
}

// tally is what came of all visits of a kind.
type tally struct {
	tried, struck int
	wrong         string // what was answered to one of them, "" if all is well
}

func (t *tally) note(struck bool, answer []byte) {
	t.tried++
	if struck {
		t.struck++
	}
	if status, spoken := bytes.CutPrefix(answer, []byte("HTTP/1.1 ")); spoken && !bytes.HasPrefix(status, []byte("4")) ||
		len(answer) > 0 && answer[0] == handshake {
		t.wrong = string(answer)
	}
}

// breakOn has broken clients come again and again, and returns what came of each kind, by its name.
func breakOn(ctx context.Context, address string) map[string]*tally {
	ctx, cancel := context.WithTimeout(ctx, brokenFor)
	defer cancel()
	kinds, came := brokenKinds(), map[string]*tally{}
	for _, kind := range kinds {
		came[kind.name] = &tally{}
	}
	var mu sync.Mutex
	var coming sync.WaitGroup
	for i := range brokenClients {
		kind := kinds[i%len(kinds)]
		coming.Go(func() {
			for ctx.Err() == nil {
				struck, answer := kind.visit(ctx, address)
				mu.Lock()
				came[kind.name].note(struck, answer)
				mu.Unlock()
				await.Sleep(ctx, time.Second)
			}
		})
	}
	coming.Wait()
	return came
}

// flood opens connections that say nothing and returns how many there were. One that finds the server's queue full tries again.
func flood(ctx context.Context, address string) (open int) {
	ctx, cancel := context.WithTimeout(ctx, floodFor)
	defer cancel()
	most := floodSize
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil {
		most = int(min(floodSize, limit.Cur/4*3))
	}
	dialer := net.Dialer{Timeout: time.Second}
	for open < most && ctx.Err() == nil {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			await.Sleep(ctx, 5*time.Millisecond)
			continue
		}
		open++
		context.AfterFunc(ctx, func() { _ = conn.Close() })
	}
	<-ctx.Done()
	return open
}
