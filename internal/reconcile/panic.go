// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// sync is Sync, but for what its panics print. They end the process, which is started again
// then, and Go prints the value of a panic that does. That may quote an object, and objects
// hold what no log may: so the panic that ends the process is one that says the type of the
// value and where it came from.
//
// It is made here, once the first one is over: Go prints all that are under way. It is no
// exit of the process, because a panic prints the other goroutines too (GOTRACEBACK=all).
func (r *Runner[K]) sync(ctx context.Context, key K) error {
	trouble, err := r.recovered(ctx, key)
	if trouble != "" {
		panic(trouble)
	}
	return err
}

// recovered tells of a panic with its stack, which has no values but addresses and numbers.
func (r *Runner[K]) recovered(ctx context.Context, key K) (trouble string, err error) {
	defer func() {
		if value := recover(); value != nil {
			trouble = fmt.Sprintf("sync of %v in queue %q: %s\n%s", key, r.Name, cause(value), debug.Stack())
		}
	}()
	return "", r.Sync(ctx, key)
}

// cause is what may be told of the value of a panic. Errors of the Go runtime say indices and
// types and nothing of what is there, such as that a pointer is nil.
func cause(value any) string {
	if known, ok := value.(runtime.Error); ok {
		return known.Error()
	}
	return fmt.Sprintf("a value of type %T", value)
}
