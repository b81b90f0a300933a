// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// outputLog keeps all that a process printed and lets callers await a text in
// it. It keeps everything, because tests look for what must not be there.
type outputLog struct {
	mu      sync.Mutex
	content bytes.Buffer
	grown   chan struct{} // closed and replaced by every write
}

func newOutputLog() *outputLog {
	return &outputLog{grown: make(chan struct{})}
}

// Write implements io.Writer.
func (l *outputLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.grown)
	l.grown = make(chan struct{})
	return l.content.Write(p)
}

func (l *outputLog) text() string {
	text, _ := l.snapshot()
	return text
}

// snapshot returns what there is and a channel that is closed once there is
// more.
func (l *outputLog) snapshot() (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.String(), l.grown
}

// await returns true once the log contains text, and false if ctx or the
// process ends first.
func (l *outputLog) await(ctx context.Context, text string, ended <-chan struct{}) bool {
	for {
		content, grown := l.snapshot()
		if strings.Contains(content, text) {
			return true
		}
		select {
		case <-grown:
		case <-ended:
			return strings.Contains(l.text(), text)
		case <-ctx.Done():
			return false
		}
	}
}

// tail returns the last lines of the log.
func (l *outputLog) tail(lines int) string {
	all := strings.Split(strings.TrimRight(l.text(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// errorLine is how klog begins a line of severity Error or Fatal.
var errorLine = regexp.MustCompile(`(?m)^[EF]\d{4} .*$`)

// cutOff is what client-go logs for a request whose answer is on its way when the
// manager ends, for a renewal of its Lease, and for a list that has not come by then.
var cutOff = regexp.MustCompile(`request\.go:.*"Unexpected error when reading response body" err="context canceled"|` +
	`leaderelection\.go:.*err="context canceled"|` +
	`shared_informer\.go:.*"Unable to sync caches"`)

// Complaints are the lines of severity Error or Fatal in what a manager has printed. What
// its end cuts off is none, nor is what one of the given expressions matches.
func Complaints(printed string, expected ...*regexp.Regexp) []string {
	return slices.DeleteFunc(errorLine.FindAllString(printed, -1), func(line string) bool {
		return slices.ContainsFunc(append(expected, cutOff), func(e *regexp.Regexp) bool { return e.MatchString(line) })
	})
}
