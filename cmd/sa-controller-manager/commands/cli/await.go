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

// lookInterval is how often something is looked at that nobody announces while the API
// server is on its way in or out. It is short: the first start of a cluster waits for this.
const lookInterval = 250 * time.Millisecond

// Look is nil once what is awaited is there, and says otherwise what is missing.
type Look func(ctx context.Context) error

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

// Await bounds a wait. Progress, unless nil, gets a line for each look.
type Await struct {
	Clock    clock.Clock
	Timeout  time.Duration
	Progress func(string)
}

// Until looks until it is satisfied, sees a permanent error, or is out of time.
func (a Await) Until(ctx context.Context, look Look) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.Timeout, fmt.Errorf("it did not come within %s", a.Timeout))
	defer cancel()
	begun := a.Clock.Now()
	var last error // the one of the end says nothing
	for {
		err := look(ctx)
		if err == nil {
			return nil
		}
		if given := (permanentError{}); errors.As(err, &given) {
			return given.error
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if a.Progress != nil {
			a.Progress(fmt.Sprintf("%s: %v", a.Clock.Since(begun).Round(time.Second), last))
		}
		select {
		case <-a.Clock.After(lookInterval):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}
