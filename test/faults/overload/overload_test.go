// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package overload

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"sa-controller-manager/test/faults/checker"
)

// TestTally wants who did no attack to prove nothing, and a promise that was broken to be
// told once, with what broke it.
func TestTally(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	good := func() Result {
		one := tally{kind: Client{name: "one"}}
		for range fewestStruck {
			one.note(visit{struck: true}, refused)
		}
		return Result{kinds: []tally{one}, open: fewestSilent}
	}
	cases := map[string]struct {
		reason string
		change func(*Result)
		want   string // in the error
		found  int
		unsure bool
	}{
		"well":    {reason: "what the server did to them is not held against it", change: func(*Result) {}},
		"too few": {reason: "nothing was tried", change: func(l *Result) { l.kinds[0].struck-- }, want: "one came as far as its attack 4 times in 5"},
		"told why": {
			reason: "who reads it has to know",
			change: func(l *Result) {
				l.kinds[0] = tally{kind: l.kinds[0].kind}
				l.kinds[0].note(visit{}, refused)
			},
			want: "at last: refused",
		},
		"few are enough": {reason: "there are few places", change: func(l *Result) { l.kinds[0].kind.fewest, l.kinds[0].struck = 1, 1 }},
		"no flood":       {reason: "the machine had no connections", change: func(l *Result) { l.open = 3 }, want: "3 connections said nothing"},
		"broken twice": {
			reason: "one line for each promise",
			change: func(l *Result) {
				for range 2 {
					var v visit
					v.violated(7, "garbage was taken")
					v.violated(8, "much was taken")
					l.kinds[0].note(v, nil)
				}
			},
			found: 2,
		},
		"broken, and too few": {
			reason: "what was found is known",
			change: func(l *Result) {
				l.kinds[0] = tally{kind: l.kinds[0].kind}
				l.kinds[0].note(visit{broken: []checker.Violation{checker.Violated(7, "garbage was taken")}}, nil)
			},
			found: 1,
		},
		"too few, beside others": {
			reason: "the machine was theirs",
			change: func(l *Result) { l.kinds[0], l.others = tally{kind: l.kinds[0].kind}, 0.5 },
			unsure: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := good()
			tc.change(&l)
			var outcome checker.Outcome
			err := l.AddTo(&outcome, nil)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error %v, want %q", tc.reason, err, tc.want)
			}
			if (outcome.Unsure != nil) != tc.unsure {
				t.Errorf("%s: unsure %v, want %t", tc.reason, outcome.Unsure, tc.unsure)
			}
			if len(outcome.Violations) != tc.found {
				t.Errorf("%s: %v, want %d violations", tc.reason, outcome.Violations, tc.found)
			}
			if outcome.BrokenCalls != l.tried()+l.open || outcome.BrokenKinds != 2 {
				t.Errorf("%s: %d attempts of %d kinds", tc.reason, outcome.BrokenCalls, outcome.BrokenKinds)
			}
		})
	}
}

// TestBrokenCallsOnABadServer has each kind that can tell meet a server that breaks the promise,
// and one that keeps it.
func TestBrokenCallsOnABadServer(t *testing.T) {
	t.Parallel()
	agrees := func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusOK) }
	swallows := func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rw.WriteHeader(http.StatusBadRequest)
	}
	refuses := func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(http.MaxBytesReader(rw, r.Body, largestReview))
		rw.WriteHeader(http.StatusBadRequest)
	}
	cases := map[string]struct {
		reason string
		serve  http.HandlerFunc
		http2  bool
		come   func(context.Context, string, *visit) error
		struck bool
		found  []int // promises
	}{
		"garbage refused":        {serve: refuses, come: notJSON, struck: true},
		"garbage taken":          {serve: agrees, come: notJSON, found: []int{7}},
		"huge body refused":      {serve: refuses, come: hugeBody, struck: true},
		"huge body read":         {serve: swallows, come: hugeBody, found: []int{8}},
		"huge body taken":        {reason: "the answer comes first", serve: agrees, come: hugeBody, struck: true, found: []int{7}},
		"half a body taken":      {reason: "nobody waits until a client is slow", serve: agrees, come: slowBody, found: []int{7}},
		"reset":                  {serve: refuses, http2: true, come: rapidReset, struck: true},
		"reset without HTTP/2":   {reason: "it was not negotiated", serve: refuses, come: rapidReset},
		"garbage instead of TLS": {serve: refuses, come: garbageForTLS, struck: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(tc.serve)
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients are broken on purpose
			server.EnableHTTP2 = tc.http2
			server.StartTLS()
			t.Cleanup(server.Close)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			checkVisit(ctx, t, tc.come, server.Listener.Addr().String(), tc.struck, tc.found)
		})
	}
}

// TestBrokenCallersOnABadSocket is the same for the signer's socket.
func TestBrokenCallersOnABadSocket(t *testing.T) {
	t.Parallel()
	answers := func(any, grpc.ServerStream) error { return nil }
	cases := map[string]struct {
		reason string
		come   func(context.Context, string, *visit) error
		serve  grpc.StreamHandler // nil refuses
		takes  bool               // the server takes everything and says nothing
		limit  time.Duration
		struck bool
		found  []int // promises
	}{
		"garbage":              {come: garbageForPreface, limit: 10 * time.Second, struck: true},
		"silence":              {come: prefaceAndSilence, limit: time.Second, struck: true},
		"resets":               {come: resetStreams, limit: 10 * time.Second, struck: true},
		"halves refused":       {come: halfMessages, limit: time.Second, struck: true},
		"halves answered":      {come: halfMessages, serve: answers, limit: time.Second, struck: true, found: []int{7}},
		"huge header refused":  {come: hugeHeader, serve: answers, limit: time.Second, struck: true},
		"huge message refused": {come: HugeMessage, limit: 10 * time.Second, struck: true},
		"huge message held":    {come: HugeMessage, takes: true, limit: 10 * time.Second, found: []int{8}},
		"not told":             {reason: "the end came first", come: HugeMessage, takes: true, limit: time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := []grpc.ServerOption{grpc.MaxHeaderListSize(16 << 10)}
			if tc.serve != nil {
				options = append(options, grpc.UnknownServiceHandler(tc.serve))
			}
			serve := serveSocket
			if tc.takes {
				serve = takeAll
			}
			socket := serve(t, grpc.NewServer(options...))
			ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
			defer cancel()
			checkVisit(ctx, t, tc.come, socket, tc.struck, tc.found)
		})
	}
}

func serveSocket(t *testing.T, server *grpc.Server) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return socket
}

// takeAll reads from each connection without a word.
func takeAll(t *testing.T, _ *grpc.Server) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(io.Discard, conn) // its end is that of the client
	}()
	return socket
}

func TestLargestBuffer(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		setting string
		want    int // 0 is for an error
	}{
		"as the kernel writes it": {"4096\t131072\t6291456\n", 6 << 20},
		"one number":              {"212992\n", 0},
		"no number":               {"a b c", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := largestBuffer(tc.setting)
			if got != tc.want || (err != nil) != (tc.want == 0) {
				t.Errorf("%d, %v; want %d", got, err, tc.want)
			}
		})
	}
}

func checkVisit(ctx context.Context, t *testing.T, come func(context.Context, string, *visit) error, address string, struck bool, promises []int) {
	t.Helper()
	var v visit
	err := come(ctx, address, &v)
	if v.struck != struck {
		t.Errorf("came as far as its attack: %v, want %v; %v", v.struck, struck, err)
	}
	var found []int
	for _, violation := range v.broken {
		found = append(found, violation.Promise)
	}
	if !slices.Equal(found, promises) {
		t.Errorf("found %v, want promises %v; %v", v.broken, promises, err)
	}
}
