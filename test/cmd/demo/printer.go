// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// indent precedes every line below the title of a step.
const indent = "     "

// printer writes numbered steps as plain text.
type printer struct {
	out   io.Writer
	begun time.Time
}

func (p *printer) sinceStart() time.Duration { return rounded(time.Since(p.begun)) }

// Linef prints a line as it is.
func (p *printer) Linef(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// Ready prints that a component is ready.
func (p *printer) Ready(component string) {
	p.Linef("  + %s: ready after %s", component, p.sinceStart())
}

// Title begins a step.
func (p *printer) Title(number int, text string) {
	p.Linef("\n%2d.  %s", number, text)
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
	p.Linef("%sverified in %s", indent, rounded(took))
}

// rounded keeps a duration to about three digits.
func rounded(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
