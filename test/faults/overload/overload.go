// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package overload has slow and broken clients connect to a server of the product, hundreds at a
// time and each kind with an attack of its own, and then thousands of silent connections.
//
// It reports how many clients got as far as their attack, and what the server did that it promises
// not to do.
package overload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/checker"
)

const (
	// brokenClients come to a server at the same time, for overloadFor.
	brokenClients = 500
	overloadFor   = 6 * time.Second
	// floodFor is how long as many connections as the machine has, floodSize at most, say
	// nothing.
	floodFor  = 3 * time.Second
	floodSize = 10_000

	// fewestStruck is how often clients of a kind have to come as far as their attack. Some
	// forty of each come, most of them several times; on a machine that is busy servers hang up
	// on most of those who have asked for nothing yet.
	fewestStruck = 5
	// fewestSilent is how many silent connections there have to be: more than either server
	// keeps, and as many as a machine has that allows a process 1024 files.
	fewestSilent = 700
)

// Client is one kind of broken client.
type Client struct {
	name string
	// come is one visit to the server. It returns when the server has had enough of it, or
	// when ctx ends, with what the server did to it. Both are as it should be: it is broken.
	come func(ctx context.Context, address string, v *visit) error
	// fewest replaces fewestStruck, unless zero.
	fewest int
}

// visit is what matters of one that a broken client has made.
type visit struct {
	// struck reports that it came as far as to do what its kind is for.
	struck bool
	// broken are promises that the server has not kept.
	broken []checker.Violation
}

func (v *visit) violated(promise int, format string, args ...any) {
	v.broken = append(v.broken, checker.Violated(promise, format, args...))
}

// tally is what came of all visits of a kind.
type tally struct {
	kind          Client
	tried, struck int
	broken        []checker.Violation
	// idle is why the last one did not come as far as its attack.
	idle error
}

func (t *tally) note(v visit, err error) {
	t.tried++
	t.broken = append(t.broken, v.broken...)
	if v.struck {
		t.struck++
		return
	}
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, context.DeadlineExceeded) { // who comes late meets the end
		t.idle = err
	}
}

// violations are one for each promise that the server has not kept, however often.
func (t *tally) violations() []checker.Violation {
	var found []checker.Violation
	for i := range checker.Promises() {
		if all := checker.Of(t.broken, i+1); len(all) > 0 {
			found = append(found, checker.Violated(i+1, "%s, %d times in %d: %s", t.kind.name, len(all), t.tried, all[0].What))
		}
	}
	return found
}

// proven is an error if too few came as far as their attack: then nobody can say what the
// server does about it.
func (t *tally) proven() error {
	fewest := cmp.Or(t.kind.fewest, fewestStruck)
	if t.struck >= fewest {
		return nil
	}
	return fmt.Errorf("%s came as far as its attack %d times in %d, want %d at least; at last: %w",
		t.kind.name, t.struck, t.tried, fewest, cmp.Or(t.idle, errors.New("no error")))
}

// Result is what came of all broken clients.
type Result struct {
	kinds []tally
	// open is how many silent connections there were at a time.
	open int
	// others is which part of the machine other programs took meanwhile; busy reports that they
	// may have, however much it was.
	others float64
	busy   bool
}

// disturbed reports that others have used the machine.
func (l Result) disturbed() bool { return l.busy || l.others > MostByOthers }

// calls is how often a client came, and how often one came as far as its attack.
func (l Result) calls() (tried, struck int) {
	for i := range l.kinds {
		tried, struck = tried+l.kinds[i].tried, struck+l.kinds[i].struck
	}
	return tried, struck
}

// Log logs how often each kind came, and how often as far as its attack.
func (l Result) Log(log func(format string, args ...any)) {
	for i := range l.kinds {
		t := &l.kinds[i]
		log("%s: %d of %d; the last of the others: %v", t.kind.name, t.struck, t.tried, t.idle)
	}
}

// AddTo puts what came of the clients into the outcome. What cannot be told, unsure too, matters
// only if nothing was found: one violation is enough to know. It is an error unless others have
// used the machine.
func (l Result) AddTo(outcome *checker.Outcome, unsure error) error {
	tried, _ := l.calls()
	outcome.BrokenCalls = tried + l.open
	for i := range l.kinds {
		outcome.Violations = append(outcome.Violations, l.kinds[i].violations()...)
		unsure = errors.Join(unsure, l.kinds[i].proven())
	}
	if l.open < fewestSilent {
		unsure = errors.Join(unsure, fmt.Errorf("%d connections said nothing, want %d at least", l.open, fewestSilent))
	}
	if len(outcome.Violations) > 0 {
		return nil
	}
	if l.disturbed() {
		outcome.Unsure = errors.Join(outcome.Unsure, unsure)
		return nil
	}
	return unsure
}

// String is for the summary of a run.
func (l Result) String() string {
	tried, struck := l.calls()
	return fmt.Sprintf("%d of %d broken calls of %d clients came as far as their attack, then %d silent connections; "+
		"other programs took %.0f %% of the machine",
		struck, tried, brokenClients, l.open, 100*l.others)
}

// Run has broken clients come again and again, each as one of the kinds, and then silent
// connections.
func Run(ctx context.Context, network, address string, kinds []Client, busy bool) (Result, error) {
	before, err := ReadProcessorTime()
	if err != nil {
		return Result{}, err
	}
	tallies := breakOn(ctx, address, kinds)
	ctx, stop := context.WithTimeout(ctx, floodFor)
	defer stop()
	open := flood(ctx, network, address)
	<-ctx.Done()
	after, err := ReadProcessorTime()
	return Result{tallies, open, after.OthersSince(before), busy}, err
}

func breakOn(ctx context.Context, address string, kinds []Client) []tally {
	ctx, cancel := context.WithTimeout(ctx, overloadFor)
	defer cancel()
	tallies := make([]tally, len(kinds))
	for i, kind := range kinds {
		tallies[i].kind = kind
	}
	var mu sync.Mutex
	var coming sync.WaitGroup
	for i := range brokenClients {
		t := &tallies[i%len(kinds)]
		coming.Go(func() {
			for ctx.Err() == nil {
				var v visit
				err := t.kind.come(ctx, address, &v)
				mu.Lock()
				t.note(v, err)
				mu.Unlock()
				await.Sleep(ctx, time.Second)
			}
		})
	}
	coming.Wait()
	return tallies
}

// flood opens connections that say nothing and keeps them until ctx ends. It returns how
// many there were. One that finds the server's queue full tries again.
func flood(ctx context.Context, network, address string) int {
	open := 0
	dialer := net.Dialer{Timeout: time.Second}
	for most := connections(floodSize); open < most && ctx.Err() == nil; {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			await.Sleep(ctx, 5*time.Millisecond)
			continue
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
