// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"k8s.io/klog/v2"
)

// recoverAs is deferred. It turns a panic into a refusal that says who panicked, and
// logs the stack.
//
// The value of a panic may quote the object, and objects hold what no log may. Only
// errors of the Go runtime are known not to; of all others just the type is told.
func recoverAs(ctx context.Context, err *error, who string) {
	value := recover()
	if value == nil {
		return
	}
	cause := fmt.Sprintf("a value of type %T", value)
	if known, ok := value.(runtime.Error); ok {
		cause = known.Error()
	}
	klog.FromContext(ctx).Error(nil, "Recovered from a panic; the request is refused", "cause", cause, "stack", string(debug.Stack()))
	*err = Internal(fmt.Errorf("%s panicked; the log of sa-controller-manager has the details", who))
}
