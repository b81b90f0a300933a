// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime/debug"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// errTooManyCallers rejects a call on a connection for which there is no place.
var errTooManyCallers = errors.New("too many connections in use")

// authFilter stands before every call: it lets allowed users through as far as there is room,
// counts and times, and turns errors into answers.
type authFilter struct {
	allowed []uint32
	metrics *Metrics
	clock   clock.PassiveClock
	logger  klog.Logger
	// refusals bounds their lines in the log: a wrong issuer refuses every token of a cluster.
	refusals rate.Sometimes
}

// intercept is a grpc.UnaryServerInterceptor.
func (f *authFilter) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	begun := f.clock.Now()
	answer, err := f.call(ctx, request, handle)
	ended := outcomeOf(err)
	method := path.Base(info.FullMethod)
	f.metrics.observe(method, ended.label, f.clock.Since(begun))
	f.log(ctx, method, ended, err)
	if err != nil {
		return nil, ended.status()
	}
	return answer, nil
}

// call recovers from a panic, so that one call cannot end the controllers.
func (f *authFilter) call(ctx context.Context, request any, handle grpc.UnaryHandler) (answer any, err error) {
	c, err := checkCaller(ctx, f.allowed)
	if err != nil {
		return nil, err
	}
	if !c.conn.Begin() {
		return nil, errTooManyCallers
	}
	defer c.conn.End()
	defer func() {
		if fault := recover(); fault != nil {
			// The value may hold anything, the payload for one; its type does not.
			err = fmt.Errorf("panic (%T) at\n%s", fault, debug.Stack())
		}
	}()
	return handle(ctx, request)
}

// log is the audit log: the line of a refused call has the caller and the rule, never the payload.
// After a burst there is at most one line a second; a metric counts all calls.
func (f *authFilter) log(ctx context.Context, method string, ended outcome, err error) {
	c, _ := callerOf(ctx)
	logger := f.logger.WithValues("method", method, "uid", c.uid, "pid", c.pid)
	switch {
	case ended.refused:
		f.refusals.Do(func() {
			logger.Info("Refused a call to the external signer", "outcome", ended.label, "reason", ended.text)
		})
	case ended.label == "error":
		logger.Error(err, "Failed to answer a call to the external signer")
	case err != nil:
		logger.V(2).Info("Rejected a call to the external signer", "outcome", ended.label)
	}
}
