// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"
)

// pollInterval is how often a check runs while no watch can report the change, as the API
// server is on its way in or out. It is short: the first start of a cluster waits for this.
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

// Await bounds a wait. Progress, unless nil, gets a line for each check.
type Await struct {
	Clock    clock.Clock
	Timeout  time.Duration
	Progress func(string)
}

// Until repeats the check until it succeeds, sees a permanent error, which it returns as one, or is out of time.
func (a Await) Until(ctx context.Context, check Check) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.Timeout, fmt.Errorf("it did not come within %s", a.Timeout))
	defer cancel()
	begun := a.Clock.Now()
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
		if a.Progress != nil {
			a.Progress(fmt.Sprintf("%s: %v", a.Clock.Since(begun).Round(time.Second), last))
		}
		select {
		case <-a.Clock.After(pollInterval):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}
