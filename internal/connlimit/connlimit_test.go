// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package connlimit

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// site is a listener on a real socket, and what it has accepted.
type site struct {
	*Limiter

	listener net.Listener
}

func listen(t *testing.T, limits Limits) site {
	t.Helper()
	listener := testutil.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	limiter := New(limits)
	return site{limiter, limiter.Wrap(listener)}
}

// pair is the two ends of a connection.
type pair struct {
	peer net.Conn
	conn *Conn
}

func (s site) come(t *testing.T) pair {
	t.Helper()
	peer := testutil.Get(net.Dial("tcp", s.listener.Addr().String()))(t)
	t.Cleanup(func() { _ = peer.Close() })
	accepted := testutil.Get(s.listener.Accept())(t)
	conn := accepted.(*Conn)
	t.Cleanup(func() { _ = conn.Close() })
	return pair{peer, conn}
}

// comeTo has a connection come and brings it into the state.
func (s site) comeTo(t *testing.T, to state) pair {
	t.Helper()
	p := s.come(t)
	if to >= started {
		testutil.Get(p.peer.Write([]byte("x")))(t)
		testutil.Get(p.conn.Read(make([]byte, 1)))(t)
	}
	testutil.Require(t, to < idle || p.conn.Begin(), "there is no place for a call")
	if to == idle {
		p.conn.End()
	}
	return p
}

// isOpen asks for what fails on a closed connection alone.
func (p pair) isOpen() bool { return p.conn.SetDeadline(time.Time{}) == nil }

// TestEviction wants a connection too many to evict the longest of the state that most are in.
func TestEviction(t *testing.T) {
	t.Parallel()
	const open = 12
	for name, flood := range map[string]state{"silent": silent, "started": started, "idle": idle, "calling": calling} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := listen(t, Limits{Open: open})
			var others []pair
			for other := range states {
				if other != flood {
					others = append(others, s.comeTo(t, other), s.comeTo(t, other))
				}
			}
			busy := s.comeTo(t, flood)
			var crowd []pair
			for len(others)+1+len(crowd) < open {
				crowd = append(crowd, s.comeTo(t, flood))
			}
			if flood >= idle { // a further call: it is not the one that waits longest
				testutil.Require(t, busy.conn.Begin(), "there is no place for a further call")
				busy.conn.End()
				others = append(others, busy)
			} else {
				crowd = append([]pair{busy}, crowd...)
			}
			last := s.come(t)
			testutil.Expect(t, !crowd[0].isOpen(), "the longest one is open")
			for i, p := range append(append(others, crowd[1:]...), last) {
				testutil.Expect(t, p.isOpen(), "connection %d of the others is closed", i)
			}
			testutil.Expect(t, !crowd[0].conn.Begin(), "an evicted connection can bring a call")
			testutil.Check(t, "open", open, s.open())
		})
	}
}

// TestCallers wants the first callers to stay, and a place to be had again once one has gone.
func TestCallers(t *testing.T) {
	t.Parallel()
	s := listen(t, Limits{Open: 8, Callers: 2})
	first, second := s.comeTo(t, idle), s.comeTo(t, calling)
	third := s.come(t)
	testutil.Expect(t, !third.conn.Begin(), "a call of a further caller has a place")
	testutil.Expect(t, first.conn.Begin(), "a further call of a caller has no place")
	first.conn.End()
	news := []pair{third}
	for range 20 {
		news = append(news, s.come(t))
		if !news[0].isOpen() {
			_ = news[0].conn.Close() // as a server does that cannot read any more
			news = news[1:]
		}
	}
	testutil.Expect(t, first.isOpen() && second.isOpen(), "a caller was evicted")
	testutil.Must(t, first.conn.Close())
	testutil.Expect(t, news[len(news)-1].conn.Begin(), "there is no place after a caller has gone")
}

// TestAcceptWaits wants no more to be accepted than the server lets go of.
func TestAcceptWaits(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		limits := Limits{Open: 4}
		callers := bufconn.Listen(1)
		listener := New(limits).Wrap(callers)
		var accepted []net.Conn
		go func() {
			for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
				accepted = append(accepted, conn)
			}
		}()
		for range limits.Accepted() + 1 {
			go callers.Dial() //nolint:errcheck // the last one gets no answer before another has gone
		}
		synctest.Wait()
		testutil.Check(t, "accepted", limits.Accepted(), len(accepted))
		testutil.Must(t, accepted[0].Close()) // it is evicted, and the server still holds it
		synctest.Wait()
		testutil.Check(t, "accepted after the server has let go of one", limits.Accepted()+1, len(accepted))
		testutil.Must(t, callers.Close())
		testutil.Must(t, accepted[1].Close()) // Accept goes on, and ends
	})
}

func TestCloseNew(t *testing.T) {
	t.Parallel()
	s := listen(t, Limits{Open: 8})
	news := []pair{s.comeTo(t, silent), s.comeTo(t, started)}
	waits, busy := s.comeTo(t, idle), s.comeTo(t, calling)
	s.CloseNew()
	for _, p := range append(news, s.come(t)) {
		testutil.Expect(t, !p.isOpen(), "one that has made no call is open")
	}
	testutil.Expect(t, waits.isOpen() && busy.isOpen(), "one that has made a call is closed")
	testutil.Expect(t, !s.AllIdle(), "all are said to be idle while a call is under way")
	busy.conn.End()
	testutil.Expect(t, s.AllIdle(), "not all are said to be idle")
	testutil.Must(t, waits.conn.Close())
	err := waits.conn.Close()
	testutil.Expect(t, errors.Is(err, net.ErrClosed), "closed twice: %v", err)
	testutil.Must(t, s.listener.Close())
	if _, err := s.listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepted by a closed listener: %v", err)
	}
}
