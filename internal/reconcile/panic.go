// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// sync calls Sync. A panic ends the process, which is then restarted, and Go prints the value of
// the panic. The value may quote an object with secrets, so sync recovers and panics again with
// the type of the value and its stack only.
//
// The second panic starts after the first one is recovered, because Go prints all active panics.
// It is no os.Exit, because a panic prints the other goroutines too (GOTRACEBACK=all).
func (r *Runner[K]) sync(ctx context.Context, key K) error {
	message, err := r.recovered(ctx, key)
	if message != "" {
		panic(message)
	}
	return err
}

// recovered returns a panic as text with its stack, which has only addresses and numbers.
func (r *Runner[K]) recovered(ctx context.Context, key K) (message string, err error) {
	defer func() {
		if value := recover(); value != nil {
			message = fmt.Sprintf("sync of %v in queue %q: %s\n%s", key, r.Name, cause(value), debug.Stack())
		}
	}()
	return "", r.Sync(ctx, key)
}

// cause returns what may be logged of the value of a panic. Errors of the Go runtime have indices
// and types but no content, for example that a pointer is nil.
func cause(value any) string {
	if known, ok := value.(runtime.Error); ok {
		return known.Error()
	}
	return fmt.Sprintf("a value of type %T", value)
}
