// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// logInterval is how often a log gets a line: what takes long shows that it works, and what does not
// takes none.
const logInterval = 10 * time.Second

// Progress is one line of a terminal that is written over again and again, and elsewhere a new
// line now and then.
type Progress struct {
	w        io.Writer
	terminal bool
	columns  int
	shown    bool
	last     time.Time // of a line in a log
}

// NewProgress writes to w.
func NewProgress(w io.Writer) *Progress {
	file, ok := w.(*os.File)
	return &Progress{w: w, terminal: ok && term.IsTerminal(int(file.Fd())), columns: TerminalWidth(w), last: time.Now()}
}

// Show replaces the line.
func (p *Progress) Show(line string) {
	if !p.terminal {
		if time.Since(p.last) >= logInterval {
			p.last = time.Now()
			fmt.Fprintln(p.w, line)
		}
		return
	}
	if runes := []rune(line); p.columns > 0 && len(runes) > p.columns {
		line = string(runes[:p.columns])
	}
	p.shown = true
	_, _ = io.WriteString(p.w, "\r\x1b[K"+line)
}

// Above is w, where the line is taken away before anything is written.
func (p *Progress) Above(w io.Writer) io.Writer { return &aboveProgress{p, w} }

type aboveProgress struct {
	progress *Progress
	w        io.Writer
}

func (a *aboveProgress) Write(data []byte) (int, error) {
	a.progress.End()
	return a.w.Write(data)
}

// End takes the line away.
func (p *Progress) End() {
	if p.shown {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// Waiting says what is waited for, once, and shows how long.
func (p *Progress) Waiting() func(what string, left time.Duration) {
	last := ""
	return func(what string, left time.Duration) {
		p.End()
		if what != last {
			last = what
			fmt.Fprintf(p.w, "Waiting: %s\n", what)
		}
		if left > 0 {
			p.Show(left.Round(time.Second).String() + " left ")
		}
	}
}

// TerminalWidth is the number of columns of the terminal that stream is, or 0.
func TerminalWidth(stream any) int {
	columns := 0
	if file, ok := stream.(*os.File); ok {
		columns, _, _ = term.GetSize(int(file.Fd())) // negative if it fails
	}
	return max(0, columns)
}
