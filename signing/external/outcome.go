// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sa-controller-manager/signing"
)

// Refusal is an error of Config.Check that is told: its text holds nothing of the payload.
type Refusal interface {
	error
	// Reason is one word, for the label of a metric.
	Reason() string
	// Malformed tells a payload that could not be judged from one that was.
	Malformed() bool
}

// outcome is how a call ended, in the words of each of those who want to know.
type outcome struct {
	// label is for the metric.
	label string
	// code and text are for the caller.
	code codes.Code
	text string
	// refused outcomes go into the log: somebody has asked for what they may not have.
	refused bool
}

// outcomeOf is the one place where errors of this process become answers. Only texts that are known
// to hold nothing of the payload and no key material leave the process; of the rest the caller
// learns that there was an error.
func outcomeOf(err error) outcome {
	refusal, isRefusal := errors.AsType[Refusal](err)
	blocked, isBlocked := errors.AsType[*signing.BlockedError](err)
	switch {
	case err == nil:
		return outcome{label: "ok", code: codes.OK}
	case isRefusal && refusal.Malformed():
		return outcome{refusal.Reason(), codes.InvalidArgument, refusal.Error(), true}
	case isRefusal:
		return outcome{refusal.Reason(), codes.PermissionDenied, refusal.Error(), true}
	case errors.Is(err, errStranger):
		return outcome{"stranger", codes.PermissionDenied, err.Error(), true}
	case errors.Is(err, errTooMany):
		return outcome{"rate", codes.ResourceExhausted, err.Error(), false}
	case errors.Is(err, errTooManyCallers):
		return outcome{"connections", codes.ResourceExhausted, err.Error(), false}
	case isBlocked:
		return outcome{"key_blocked", codes.Unavailable, blocked.Error(), false}
	case errors.Is(err, errNoKeys):
		return outcome{"no_keys", codes.Unavailable, err.Error(), false}
	case errors.Is(err, context.DeadlineExceeded):
		return outcome{"canceled", codes.DeadlineExceeded, "the caller's time is up", false}
	case errors.Is(err, context.Canceled):
		return outcome{"canceled", codes.Canceled, "the caller has gone", false}
	}
	return outcome{"error", codes.Internal, "the signer has failed; its log says why", false}
}

// status is what goes back, nil for success.
func (o outcome) status() error {
	return status.Error(o.code, o.text)
}
