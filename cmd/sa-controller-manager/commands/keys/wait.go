// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/signing/rotation"
)

const (
	// lookAgain is how often a wait looks whether the ring has changed meanwhile or kube-apiserver
	// has changed its mind.
	lookAgain = 5 * time.Second
	// maxLasting is how many answers in a row that time does not mend end a wait. One is not
	// enough: a kube-apiserver that has just been started, with the key that is waited for, forbids
	// everything until it has read the roles.
	maxLasting = 4
)

// AwaitActivation returns once nothing but the proof is missing.
func (o *Operator) AwaitActivation(ctx context.Context) error {
	for {
		state, err := o.read()
		if err != nil {
			return err
		}
		if _, err = rotation.Activate(state, o.Clock.Now(), o.Policy, false); err == nil {
			return nil
		}
		if !o.await(ctx, err) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// await lets some time pass if that may help, and tells whether to try again.
func (o *Operator) await(ctx context.Context, reason error) bool {
	if ctx.Err() != nil {
		return false
	}
	var refusal *rotation.Refusal
	var refused *notAcceptedError
	var left time.Duration
	var what string
	pause := lookAgain
	switch {
	case errors.As(reason, &refusal) && !refusal.Until.IsZero():
		left = refusal.Until.Sub(o.Clock.Now())
		pause, what = min(left, lookAgain), refusal.Reason
	case errors.As(reason, &refused):
		what = refused.Error()
	default:
		return false
	}
	if o.Progress != nil {
		o.Progress(what, left)
	}
	timer := o.Clock.NewTimer(max(pause, time.Millisecond))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// lasts tells an answer that time does not mend, such as that there is no such account, from a key
// that kube-apiserver does not accept yet, and from a kube-apiserver that cannot be reached or has
// too much to do.
func lasts(err error) bool {
	notAccepted, ok := errors.AsType[*notAcceptedError](err)
	if !ok || keyprobe.IsRefusal(notAccepted.err) {
		return false
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code < http.StatusInternalServerError && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests
	}
	_, unreachable := errors.AsType[*url.Error](err)
	return !unreachable
}
