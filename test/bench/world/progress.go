// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Progress tells a person what goes on: results as lines on standard output, and what is
// under way in one line of standard error that is overwritten, if that is a terminal. It
// is safe for any number of goroutines.
type Progress struct {
	mu       sync.Mutex
	status   io.Writer // nil if nobody looks
	text     string
	began    time.Time
	reported time.Time
}

// NewProgress begins the run.
func NewProgress() *Progress {
	p := &Progress{began: time.Now()}
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		p.status = os.Stderr
	}
	return p
}

// Statusf says what is under way from now on.
func (p *Progress) Statusf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = fmt.Sprintf(format, args...)
	p.show(p.text)
}

// Countf says how far it is.
func (p *Progress) Countf(reached, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.reported) < time.Second/2 {
		return
	}
	p.reported = time.Now()
	p.show(fmt.Sprintf("%s: %d of %d", p.text, reached, total))
}

func (p *Progress) show(text string) {
	if p.status != nil {
		fmt.Fprintf(p.status, "\r\x1b[K%s  %s", time.Since(p.began).Round(time.Second), text)
	}
}

// Linef prints a result.
func (p *Progress) Linef(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status != nil {
		fmt.Fprint(p.status, "\r\x1b[K")
	}
	fmt.Fprintf(os.Stdout, "%7s  %s\n", time.Since(p.began).Round(time.Second), fmt.Sprintf(format, args...))
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
