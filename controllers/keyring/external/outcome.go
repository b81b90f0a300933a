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

// Refusal is an error of Config.Check that may be returned to the caller: its text contains nothing
// of the payload.
type Refusal interface {
	error
	// Reason is one word, for the label of a metric.
	Reason() string
	// Malformed reports whether the payload could not be read.
	Malformed() bool
}

// outcome is how a call ended: for metrics, for the caller and for the log.
type outcome struct {
	// label is for the metric.
	label string
	// code and text are for the caller.
	code codes.Code
	text string
	// refused outcomes are logged: the caller asked for something that is not allowed.
	refused bool
}

// outcomeOf turns the errors of this process into answers. Only texts without payload and key
// material leave the process; of other errors the caller only learns that there was one.
func outcomeOf(err error) outcome {
	refusal, isRefusal := errors.AsType[Refusal](err)
	blocked, isBlocked := errors.AsType[*signing.BlockedError](err)
	unavailable, isUnavailable := errors.AsType[*signing.UnavailableError](err)
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
	case isUnavailable && unavailable.Refused: // perhaps these claims alone
		return outcome{"backend", codes.Unavailable, unavailable.Error(), true}
	case isUnavailable:
		return outcome{"backend", codes.Unavailable,
			"the process that has the signing key does not sign; the log of sa-controller-manager says why", false}
	case errors.Is(err, context.DeadlineExceeded):
		return outcome{"canceled", codes.DeadlineExceeded, "the caller's time is up", false}
	case errors.Is(err, context.Canceled):
		return outcome{"canceled", codes.Canceled, "the caller has gone", false}
	}
	return outcome{"error", codes.Internal, "the signer has failed; its log says why", false}
}

// status returns the answer, nil for success.
func (o outcome) status() error {
	return status.Error(o.code, o.text)
}
