// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"os"
	"sync"
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

// Sleep waits, because time is what is measured.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
