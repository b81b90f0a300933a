// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import "fmt"

// follower is the memory of one Watch: what it has told already, and what it waits to see again.
type follower[T any] struct {
	file     *File[T]
	accepted func(T)
	refused  func(error)

	told      *reading // the bad reading told last; nil while the content in use is on disk
	candidate *reading // a change seen once
	unsettled int      // different readings in a row
}

// read looks at the file once and acts on a change that has been seen twice. It reports whether it wants to look again soon.
func (f *follower[T]) read() (again bool) {
	seen := f.file.look()
	if f.known(seen) {
		f.candidate, f.unsettled = nil, 0
		return false
	}
	stable := f.candidate != nil && f.candidate.same(seen)
	f.unsettled++
	if !stable && f.unsettled < maxUnsettled {
		f.candidate = &seen
		return true
	}
	f.candidate, f.unsettled = nil, 0
	f.act(seen)
	return false
}

// known reports whether there is nothing to say about a reading: it is the content in use, or it was told as bad.
func (f *follower[T]) known(seen reading) bool {
	if seen.err == nil && seen.sum == f.file.current.Load().sum {
		f.told = nil
		f.file.refused.Store(nil)
		return true
	}
	return f.told != nil && f.told.same(seen)
}

// act takes a changed content: parsed first, swapped in, then told.
func (f *follower[T]) act(seen reading) {
	err := seen.err
	var value T
	if err == nil {
		if value, err = f.file.parse(seen.data); err != nil {
			err = fmt.Errorf("%s: %w", f.file.path, err)
		}
	}
	if err != nil {
		seen.data = nil // only the digest is needed from here on, and the file may hold a key
		f.told = &seen
		f.file.refused.Store(&err)
		f.refused(err)
		return
	}
	f.told = nil
	f.file.refused.Store(nil)
	f.file.current.Store(&parsed[T]{value: value, sum: seen.sum})
	f.accepted(value)
}
