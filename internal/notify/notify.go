// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notify tells parts of the process of a change in another one. The part that changes has a Change as
// a field; who builds the parts subscribes those that follow it.
package notify

// Change is one kind of change, with what has changed. Its zero value is ready. Subscribe must not be called
// once Notify may be.
type Change[T any] struct{ subscribers []func(T) }

// Subscribe has call called with each change, on the goroutine that makes it. It must not block.
func (c *Change[T]) Subscribe(call func(T)) { c.subscribers = append(c.subscribers, call) }

// Notify calls all subscribers, in the order in which they have subscribed.
func (c *Change[T]) Notify(changed T) {
	for _, call := range c.subscribers {
		call(changed)
	}
}
