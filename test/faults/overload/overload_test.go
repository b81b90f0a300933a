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

// TestTally wants clients that came to no attack to prove nothing, and a broken promise to be
// reported once.
func TestTally(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	cases := map[string]struct {
		reason string
		visits []visit
		open   int
		others float64
		want   string // in the error
		found  int
		unsure bool
	}{
		"well": {visits: slices.Repeat([]visit{{struck: true}}, fewestStruck), open: fewestSilent},
		"too few": {
			visits: []visit{{struck: true}, {}}, open: fewestSilent,
			want: "one came as far as its attack 1 times in 2, want 5 at least; at last: refused",
		},
		"no flood": {visits: slices.Repeat([]visit{{struck: true}}, fewestStruck), open: 3, want: "3 connections said nothing"},
		"broken, and too few": {
			reason: "what was found is known, and one line for each promise is enough",
			visits: slices.Repeat([]visit{{broken: []checker.Violation{checker.Violated(7, "garbage was taken"),
				checker.Violated(8, "much was taken")}}}, 2),
			found: 2,
		},
		"too few, beside others": {reason: "the machine was theirs", others: 0.5, unsure: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := tally{kind: Client{name: "one"}}
			for _, v := range tc.visits {
				one.note(v, refused)
			}
			var outcome checker.Outcome
			err := Result{kinds: []tally{one}, open: tc.open, others: tc.others}.AddTo(&outcome, nil)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error %v, want %q", tc.reason, err, tc.want)
			}
			if len(outcome.Violations) != tc.found || (outcome.Unsure != nil) != tc.unsure {
				t.Errorf("%s: %v and unsure %v, want %d violations and unsure %t", tc.reason, outcome.Violations, outcome.Unsure, tc.found, tc.unsure)
			}
		})
	}
}

// TestBrokenCallsOnABadServer has kinds that can tell meet a server that breaks the promise.
func TestBrokenCallsOnABadServer(t *testing.T) {
	t.Parallel()
	agrees := func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusOK) }
	swallows := func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rw.WriteHeader(http.StatusBadRequest)
	}
	cases := map[string]struct {
		reason string
		serve  http.HandlerFunc
		come   func(context.Context, string, *visit) error
		struck bool
		found  []int // promises
	}{
		"garbage taken":     {serve: agrees, come: notJSON, found: []int{7}},
		"huge body read":    {serve: swallows, come: hugeBody, found: []int{8}},
		"huge body taken":   {reason: "the answer comes first", serve: agrees, come: hugeBody, struck: true, found: []int{7}},
		"half a body taken": {reason: "nobody waits until a client is slow", serve: agrees, come: slowBody, found: []int{7}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(tc.serve)
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients are broken on purpose
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
	cases := map[string]struct {
		come   func(context.Context, string, *visit) error
		serve  func(net.Listener)
		limit  time.Duration
		struck bool
		found  []int // promises
	}{
		"halves answered": {come: halfMessages, serve: answerAll, limit: time.Second, struck: true, found: []int{7}},
		"message held":    {come: HugeMessage, serve: takeAll, limit: 10 * time.Second, found: []int{8}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(t.TempDir(), "s")
			listener, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = listener.Close() })
			go tc.serve(listener)
			ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
			defer cancel()
			checkVisit(ctx, t, tc.come, socket, tc.struck, tc.found)
		})
	}
}

// answerAll answers every call of gRPC well, until the listener is closed.
func answerAll(listener net.Listener) {
	answers := grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return nil })
	_ = grpc.NewServer(answers).Serve(listener) // its end is that of the test
}

// takeAll reads from one connection without a word.
func takeAll(listener net.Listener) {
	conn, err := listener.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.Copy(io.Discard, conn) // its end is that of the client
}

func checkVisit(ctx context.Context, t *testing.T, come func(context.Context, string, *visit) error, address string, struck bool,
	promises []int) {
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
