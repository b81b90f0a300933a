// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package narrate prints the stories of the demonstrations: numbered steps, what was
// observed in each, and how long it took. It is for one goroutine.
package narrate

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// Indent is before every line below the title of a step.
	Indent = "     "
	bold   = "1"
	green  = "32"
	red    = "31"
)

// Printer writes the story as plain text, with colour only on a terminal whose
// user has not declined it (https://no-color.org).
type Printer struct {
	out    io.Writer
	colour bool
}

// NewPrinter writes to file.
func NewPrinter(file *os.File) *Printer {
	info, err := file.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &Printer{out: file, colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Linef prints a line as it is.
func (p *Printer) Linef(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// Began says that a part of the set-up is ready.
func (p *Printer) Began(what string, took time.Duration) {
	p.Linef("  %s %s: ready in %s", p.paint(green, "+"), what, Rounded(took))
}

// Title begins a step.
func (p *Printer) Title(number int, text string) {
	p.Linef("\n%2d.  %s", number, p.paint(bold, text))
}

// Notef prints one observation, its first line behind the label and further
// lines below it.
func (p *Printer) Notef(label, format string, args ...any) {
	for line := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		p.Linef("%s", strings.TrimRight(fmt.Sprintf("%s%-10s %s", Indent, label, line), " "))
		label = ""
	}
}

// Verified ends a step.
func (p *Printer) Verified(took time.Duration) {
	p.Linef("%s%s in %s", Indent, p.paint(green, "verified"), Rounded(took))
}

// Failure prints why the demonstration ended early.
func (p *Printer) Failure(err error) {
	p.Linef("\n%s: %s", p.paint(red, "FAILED"), err)
}

func (p *Printer) paint(code, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Rounded keeps a duration to about three digits.
func Rounded(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// Stopwatch measures laps and the total.
type Stopwatch struct{ start, last time.Time }

// StartWatch begins to measure now.
func StartWatch() *Stopwatch {
	now := time.Now()
	return &Stopwatch{start: now, last: now}
}

// Lap is the time since the last lap or the start.
func (w *Stopwatch) Lap() time.Duration {
	last := w.last
	w.last = time.Now()
	return w.last.Sub(last)
}

// Total is the time since the start.
func (w *Stopwatch) Total() time.Duration { return Rounded(time.Since(w.start)) }
