// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	indent = "     "
	bold   = "1"
	green  = "32"
	red    = "31"
)

// printer writes the story as plain text, with colour only on a terminal whose
// user has not declined it (https://no-color.org).
type printer struct {
	out    io.Writer
	colour bool
}

func newPrinter(file *os.File) *printer {
	info, err := file.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &printer{out: file, colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (p *printer) linef(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// began says that a part of the set-up is ready.
func (p *printer) began(what string, took time.Duration) {
	p.linef("  %s %s: ready in %s", p.paint(green, "+"), what, rounded(took))
}

// title begins a step.
func (p *printer) title(number int, text string) {
	p.linef("\n%2d.  %s", number, p.paint(bold, text))
}

// notef prints one observation, its first line behind the label and further
// lines below it.
func (p *printer) notef(label, format string, args ...any) {
	for line := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		p.linef("%s", strings.TrimRight(fmt.Sprintf("%s%-10s %s", indent, label, line), " "))
		label = ""
	}
}

func (p *printer) verified(took time.Duration) {
	p.linef("%s%s in %s", indent, p.paint(green, "verified"), rounded(took))
}

// failure prints why the demonstration ended early.
func (p *printer) failure(err error) {
	p.linef("\n%s: %s", p.paint(red, "FAILED"), err)
}

func (p *printer) paint(code, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// rounded keeps a duration to about three digits.
func rounded(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// stopwatch measures laps and the total.
type stopwatch struct{ start, last time.Time }

func startWatch() *stopwatch {
	now := time.Now()
	return &stopwatch{start: now, last: now}
}

// lap is the time since the last lap or the start.
func (w *stopwatch) lap() time.Duration {
	last := w.last
	w.last = time.Now()
	return w.last.Sub(last)
}

func (w *stopwatch) total() time.Duration { return rounded(time.Since(w.start)) }
