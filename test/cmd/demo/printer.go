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
	// indent precedes every line below the title of a step.
	indent = "     "
	bold   = "1"
	green  = "32"
	red    = "31"
)

// printer writes numbered steps as plain text, with colour only on a terminal whose user has not
// declined it (https://no-color.org).
type printer struct {
	out    io.Writer
	colour bool
	begun  time.Time
}

func newPrinter(file *os.File) *printer {
	info, err := file.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &printer{
		out: file, begun: time.Now(),
		colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

func (p *printer) sinceStart() time.Duration { return rounded(time.Since(p.begun)) }

// Linef prints a line as it is.
func (p *printer) Linef(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// Ready prints that a component is ready.
func (p *printer) Ready(component string) {
	p.Linef("  %s %s: ready after %s", p.paint(green, "+"), component, p.sinceStart())
}

// Title begins a step.
func (p *printer) Title(number int, text string) {
	p.Linef("\n%2d.  %s", number, p.paint(bold, text))
}

// Notef prints one observation: its first line after the label, further lines below it.
func (p *printer) Notef(label, format string, args ...any) {
	for line := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		p.Linef("%s", strings.TrimRight(fmt.Sprintf("%s%-10s %s", indent, label, line), " "))
		label = ""
	}
}

// Verified ends a step.
func (p *printer) Verified(took time.Duration) {
	p.Linef("%s%s in %s", indent, p.paint(green, "verified"), rounded(took))
}

// Failure prints why the demonstration ended early.
func (p *printer) Failure(err error) {
	p.Linef("\n%s: %s", p.paint(red, "FAILED"), err)
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
