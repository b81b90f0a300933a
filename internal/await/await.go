// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package await repeats a check until it succeeds, where no watch can report the change: the API server itself may be on its
// way in or out.
package await

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollInterval is how often a check runs. It is short: the first start of a cluster waits for this.
const pollInterval = 250 * time.Millisecond

// Check returns nil once what is awaited is there, or else an error with what is missing.
type Check func(ctx context.Context) error

type permanentError struct{ error }

// Permanent is an error that waiting does not change.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

// IsPermanent reports whether an error is of Permanent.
func IsPermanent(err error) bool { return errors.As(err, new(permanentError)) }

// Poll bounds a wait. Progress, unless nil, gets a line for each check.
type Poll struct {
	Timeout  time.Duration
	Progress func(string)
}

// Until repeats the check until it succeeds, sees a permanent error, which it returns as one, or is out of time.
func (p Poll) Until(ctx context.Context, check Check) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout, fmt.Errorf("it did not come within %s", p.Timeout))
	defer cancel()
	begun := time.Now()
	var last error // the one of the end says nothing
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if given := (permanentError{}); errors.As(err, &given) {
			return given
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if p.Progress != nil {
			p.Progress(fmt.Sprintf("%s: %v", time.Since(begun).Round(time.Second), last))
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}
