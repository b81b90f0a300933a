// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

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
