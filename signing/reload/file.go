// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	defaultPoll   = 10 * time.Second
	defaultSettle = 500 * time.Millisecond

	// maxUnsettled bounds how many readings in a row may differ. After that, a file that is written
	// to without a pause is taken as it is.
	maxUnsettled = 8
)

// Options tune the watch. The zero value is right outside tests.
type Options struct {
	// Poll is how often the file is read when no notification arrives. 0 means 10 s.
	Poll time.Duration
	// Settle is the time between the two readings that must agree before a change counts, so that a
	// file that is truncated and not yet written is not read. 0 means 500 ms. A change takes effect
	// after Poll + 8*Settle at the latest.
	Settle time.Duration

	// newNotifier replaces fsnotify in tests.
	newNotifier func(path string) notifier
}

// File is the parsed content of a file. A changed content replaces the value, which is never modified
// in place.
type File[T any] struct {
	path    string
	parse   func([]byte) (T, error)
	options Options
	current atomic.Pointer[parsed[T]]
	refused atomic.Pointer[error]
}

// parsed is a value with the digest of the content it came from.
type parsed[T any] struct {
	value T
	sum   [sha256.Size]byte
}

// Open reads and parses the file at path. The error names the path and what is wrong, and wraps the
// error of the file system or of parse. parse may be called again by Watch and must not keep the
// slice.
func Open[T any](path string, parse func([]byte) (T, error), options Options) (*File[T], error) {
	options.Poll, options.Settle = cmp.Or(options.Poll, defaultPoll), cmp.Or(options.Settle, defaultSettle)
	if options.newNotifier == nil {
		options.newNotifier = newDirNotifier
	}
	file := &File[T]{path: path, parse: parse, options: options}
	got := file.readNow()
	if got.err != nil {
		return nil, got.err
	}
	value, err := parse(got.data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	file.current.Store(&parsed[T]{value: value, sum: got.sum})
	return file, nil
}

// Path is the path given to Open.
func (f *File[T]) Path() string { return f.path }

// Get returns the value of the last good content. It does not block.
func (f *File[T]) Get() T { return f.current.Load().value }

// Refused returns the error of the content on disk, or nil while that content is in use. It does not
// block.
func (f *File[T]) Refused() error {
	if refused := f.refused.Load(); refused != nil {
		return *refused
	}
	return nil
}

// Watch follows the file until ctx ends. accepted is called with each new value, after Get returns
// it. refused is called once for each bad content in a row of readings, and once when the file goes
// missing or cannot be read; its error names the path. A return to the content in use is not
// reported.
func (f *File[T]) Watch(ctx context.Context, accepted func(T), refused func(error)) {
	notify := f.options.newNotifier(f.path)
	defer notify.close()
	poll := time.NewTicker(f.options.Poll)
	defer poll.Stop()

	// Changes between Open and now have sent no notification.
	settled := time.NewTimer(0)
	defer settled.Stop()
	follow := &follower[T]{file: f, accepted: accepted, refused: refused}
	waiting := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-notify.changes():
			// A timer that runs already is left alone: a busy directory must not put off the
			// reading endlessly.
			if waiting {
				continue
			}
			settled.Reset(f.options.Settle)
			waiting = true
			continue
		case <-poll.C:
			notify.renew()
			if waiting {
				continue
			}
		case <-settled.C:
		}
		if waiting = follow.read(); waiting {
			settled.Reset(f.options.Settle)
		}
	}
}

// follower is the state of one Watch.
type follower[T any] struct {
	file     *File[T]
	accepted func(T)
	refused  func(error)

	reported  *reading // the last bad reading; nil while the content in use is on disk
	candidate *reading // a change seen once
	unsettled int      // different readings in a row
}

// read reads the file once and applies a change that two readings agree on. It reports whether the
// file must be read again soon.
func (f *follower[T]) read() (again bool) {
	got := f.file.readNow()
	if f.known(got) {
		f.candidate, f.unsettled = nil, 0
		return false
	}
	stable := f.candidate != nil && f.candidate.same(got)
	f.unsettled++
	if !stable && f.unsettled < maxUnsettled {
		f.candidate = &got
		return true
	}
	f.candidate, f.unsettled = nil, 0
	f.act(got)
	return false
}

// known reports whether a reading is the content in use, or was reported as bad before.
func (f *follower[T]) known(got reading) bool {
	if got.err == nil && got.sum == f.file.current.Load().sum {
		f.reported = nil
		f.file.refused.Store(nil)
		return true
	}
	return f.reported != nil && f.reported.same(got)
}

// act parses a changed content, replaces the value and reports it.
func (f *follower[T]) act(got reading) {
	err := got.err
	var value T
	if err == nil {
		if value, err = f.file.parse(got.data); err != nil {
			err = fmt.Errorf("%s: %w", f.file.path, err)
		}
	}
	if err != nil {
		got.data = nil // only the digest is needed from here on, and the file may hold a key
		f.reported = &got
		f.file.refused.Store(&err)
		f.refused(err)
		return
	}
	f.reported = nil
	f.file.refused.Store(nil)
	f.file.current.Store(&parsed[T]{value: value, sum: got.sum})
	f.accepted(value)
}

// maxSize is the size in bytes beyond which a file is refused unread. A Secret or ConfigMap cannot
// be larger, and no bundle of keys or certificates comes near it.
const maxSize = 8 << 20

// reading is the result of reading the file once: its content or an error.
type reading struct {
	data []byte
	sum  [sha256.Size]byte
	err  error
}

// same reports whether two readings have the same result. Errors are compared by their text, so
// that "permission denied" after "no such file" is reported and the same error again is not.
func (r reading) same(other reading) bool {
	if r.err != nil || other.err != nil {
		return r.err != nil && other.err != nil && r.err.Error() == other.err.Error()
	}
	return r.sum == other.sum
}

func (f *File[T]) readNow() reading {
	data, err := ReadFile(f.path)
	if err != nil {
		return reading{err: err}
	}
	return reading{data: data, sum: sha256.Sum256(data)}
}

// ReadFile returns the content of the regular file at path, of 8 MiB at most. The error names the
// path.
func ReadFile(path string) ([]byte, error) {
	data, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, withoutPath(err))
	}
	return data, nil
}

// read returns the whole content of a regular file. Anything else is refused before it is opened,
// because opening a pipe waits for a writer.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, errors.New("is a directory, not a file")
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read only: nothing can be lost
	data, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("is larger than %d bytes", maxSize)
	}
	return data, nil
}

// withoutPath drops the operation and path of a file system error: the caller says both.
func withoutPath(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// notifier signals events in the directory of a file. It may miss changes: the poll finds them.
type notifier interface {
	changes() <-chan struct{}
	renew() // sets up what failed before, or was lost because the directory was replaced
	close()
}

// dirNotifier watches the parent directory with fsnotify. It reports no errors, because the poll does
// not need it.
type dirNotifier struct {
	dir     string
	watcher *fsnotify.Watcher
	changed chan struct{} // holds one: further changes before the reading add nothing
	drained chan struct{} // closed when the goroutine of the present watcher has ended
}

func newDirNotifier(path string) notifier {
	n := &dirNotifier{dir: filepath.Dir(path), changed: make(chan struct{}, 1)}
	n.renew()
	return n
}

func (n *dirNotifier) changes() <-chan struct{} { return n.changed }

// renew creates the watcher if there is none and adds the directory, which is a no-op if it is watched
// already.
func (n *dirNotifier) renew() {
	if n.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return
		}
		n.watcher, n.drained = watcher, make(chan struct{})
		go n.drain()
	}
	_ = n.watcher.Add(n.dir)
}

// drain turns events and errors (such as an overflown queue, which hides events) into one signal.
// It does not ask which file an event is about: behind a chain of links any name may be the one
// that matters.
func (n *dirNotifier) drain() {
	defer close(n.drained)
	events, errs := n.watcher.Events, n.watcher.Errors
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case _, ok := <-errs:
			if !ok {
				return
			}
		}
		select {
		case n.changed <- struct{}{}:
		default:
		}
	}
}

func (n *dirNotifier) close() {
	if n.watcher == nil {
		return
	}
	_ = n.watcher.Close()
	<-n.drained
}
