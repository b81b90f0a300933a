// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/signing/ring"
)

const (
	// pollInterval is how often a wait reads the ring and asks kube-apiserver.
	pollInterval = 2 * time.Second
	// maxPermanent is how many permanent errors in a row end a wait. One is not enough: a
	// kube-apiserver that has just started forbids everything until it has read the roles.
	maxPermanent = 4
)

// await waits a while if that may help, and reports whether to try again. A kube-apiserver that cannot be reached is
// waited for if it could be before: it may restart.
func (o *Operator) await(ctx context.Context, reason error, waited bool) bool {
	if ctx.Err() != nil {
		return false
	}
	var refusal *ring.Refusal
	var refused *notAcceptedError
	var left time.Duration
	what, pause := reason.Error(), pollInterval
	switch {
	case errors.As(reason, &refusal) && !refusal.Until.IsZero():
		left = refusal.Until.Sub(o.Clock.Now())
		pause, what = min(left, pollInterval), refusal.Reason
	case errors.As(reason, &refusal) && refusal.Later:
	case errors.As(reason, &refused), waited && isTransient(reason):
	default:
		return false
	}
	o.progress(what, left)
	return o.sleep(ctx, pause)
}

func (o *Operator) progress(what string, left time.Duration) {
	if o.Progress != nil {
		o.Progress(what, left)
	}
}

// sleep reports whether ctx has not ended.
func (o *Operator) sleep(ctx context.Context, pause time.Duration) bool {
	timer := o.Clock.NewTimer(max(pause, time.Millisecond))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// isPermanent reports whether waiting does not help, such as when the account does not exist. It helps
// if kube-apiserver does not accept the key yet, cannot be reached or is overloaded.
func isPermanent(err error) bool {
	notAccepted, ok := errors.AsType[*notAcceptedError](err)
	return ok && !keyprobe.IsRefusal(notAccepted.err) && !isTransient(err)
}

func isTransient(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusRequestTimeout || code == http.StatusTooManyRequests
	}
	_, unreachable := errors.AsType[*url.Error](err)
	return unreachable
}

// notAcceptedError means that kube-apiserver has not accepted a key.
type notAcceptedError struct {
	id      string
	foreign bool
	err     error
}

func notAccepted(key ring.Key, err error) error {
	return &notAcceptedError{id: key.ID, foreign: key.Foreign(), err: err}
}

func (e *notAcceptedError) Error() string {
	if !keyprobe.IsRefusal(e.err) {
		return fmt.Sprintf("it is not known whether key %s is accepted: %v", e.id, e.err)
	}
	if e.foreign {
		return fmt.Sprintf("key %s cannot sign yet: %v: its ID is one that its signer has chosen, "+
			"so every kube-apiserver needs our external signer; wait until that publishes it", e.id, e.err)
	}
	return fmt.Sprintf("key %s cannot sign yet: %v: wait if an external signer publishes it; give a kube-apiserver with key files "+
		"the file that 'keys export --kubeadm' writes and restart it", e.id, e.err)
}

func (e *notAcceptedError) Unwrap() error { return e.err }
