// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"fmt"
	"path"
	"runtime/debug"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// gate stands before every call: it lets allowed users through as far as there is room, counts and times, and turns errors into answers.
type gate struct {
	allowed []uint32
	among   *connections
	metrics *Metrics
	clock   clock.PassiveClock
	logger  klog.Logger
}

// intercept is a grpc.UnaryServerInterceptor.
func (g *gate) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	begun := g.clock.Now()
	answer, err := g.call(ctx, request, handle)
	ended := outcomeOf(err)
	method := path.Base(info.FullMethod)
	g.metrics.observe(method, ended.label, g.clock.Since(begun))
	g.log(ctx, method, ended, err)
	if err != nil {
		return nil, ended.status()
	}
	return answer, nil
}

// call recovers: a fault in the answer to one call is not to end the controllers.
func (g *gate) call(ctx context.Context, request any, handle grpc.UnaryHandler) (answer any, err error) {
	c, err := checkCaller(ctx, g.allowed)
	if err != nil {
		return nil, err
	}
	if err := g.among.called(c.conn); err != nil {
		return nil, err
	}
	defer func() {
		if fault := recover(); fault != nil {
			// The value may hold anything, the payload for one; its type does not.
			err = fmt.Errorf("panic (%T) at\n%s", fault, debug.Stack())
		}
	}()
	return handle(ctx, request)
}

// log is the audit: one line for each refusal, which says who asked and which rule it was, never what was asked for.
func (g *gate) log(ctx context.Context, method string, ended outcome, err error) {
	c, _ := callerOf(ctx)
	logger := g.logger.WithValues("method", method, "uid", c.uid, "pid", c.pid)
	switch {
	case ended.refused:
		logger.Info("Refused a call to the external signer", "outcome", ended.label, "reason", ended.text)
	case ended.label == "error":
		logger.Error(err, "A call to the external signer has failed")
	case err != nil:
		logger.V(2).Info("A call to the external signer was not answered", "outcome", ended.label)
	}
}
