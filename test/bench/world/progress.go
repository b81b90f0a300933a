// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Progress prints results as lines on standard output, and what is under way as lines on standard
// error. It is safe for any number of goroutines.
type Progress struct {
	mu    sync.Mutex
	began time.Time
}

// NewProgress begins the run.
func NewProgress() *Progress { return &Progress{began: time.Now()} }

// Statusf says what is under way from now on.
func (p *Progress) Statusf(format string, args ...any) { p.print(os.Stderr, format, args) }

// Linef prints a result.
func (p *Progress) Linef(format string, args ...any) { p.print(os.Stdout, format, args) }

func (p *Progress) print(to *os.File, format string, args []any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(to, "%7s  %s\n", time.Since(p.began).Round(time.Second), fmt.Sprintf(format, args...))
}

// Main runs a measurement until it ends, the limit is reached or somebody interrupts it, and returns
// the exit code.
func Main(limit time.Duration, measure func(context.Context) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("the time for the whole run is over"))
	defer cancel()
	if err := measure(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Sleep waits, because time is what is measured.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
