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
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/relying"
	"sa-controller-manager/controllers/keyring/ring"
)

const (
	// pollInterval is how often a wait reads the ring and asks kube-apiserver.
	pollInterval = 2 * time.Second
	// maxErrors is how many errors in a row end a wait. One is not enough: a kube-apiserver that has just started
	// forbids everything until it has read the roles.
	maxErrors = 4
)

// waiting is what a wait has seen.
type waiting struct {
	reached bool // kube-apiserver has answered before
	errors  int  // in a row
}

// await waits a while if that may help, and reports whether to try again. A kube-apiserver that cannot be reached is
// waited for if it could be before: it may restart.
func (o *Operator) await(ctx context.Context, reason error, w *waiting) bool {
	refusal, refused := errors.AsType[*ring.Refusal](reason)
	if ctx.Err() != nil || refused && !refusal.Later && refusal.Until.IsZero() {
		return false
	}
	if w.errors++; refused || w.reached && isTransient(reason) {
		w.errors = 0
	}
	if w.errors == maxErrors {
		return false
	}
	w.reached = w.reached || refused
	var left time.Duration
	what, pause := reason.Error(), pollInterval
	if refused && !refusal.Until.IsZero() {
		left = refusal.Until.Sub(o.Clock.Now())
		pause, what = min(left, pollInterval), refusal.Reason
	}
	o.Progress(what, left)
	return o.sleep(ctx, pause)
}

// sleep reports whether ctx has not ended.
func (o *Operator) sleep(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-o.Clock.After(max(pause, time.Millisecond)):
	}
	return ctx.Err() == nil
}

// isTransient reports whether kube-apiserver cannot be reached or is overloaded.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusRequestTimeout || code == http.StatusTooManyRequests
	}
	_, unreachable := errors.AsType[*url.Error](err)
	return unreachable
}

// notAccepted says what to do about the error of Accepts. It is a *ring.Refusal if waiting may help.
func notAccepted(key ring.Key, err error) error {
	remedy := "wait if an external signer publishes it; give a kube-apiserver with key files the file that 'keys export --kubeadm' " +
		"writes and restart it"
	switch {
	case err == nil:
		return nil
	case !keyprobe.IsRefusal(err) && !isTransient(err):
		return fmt.Errorf("it is not known whether key %s is accepted: %w", key.ID, err)
	case key.Foreign():
		remedy = "its ID is one that its signer has chosen, so every kube-apiserver needs our external signer; wait until that publishes it"
	}
	return &ring.Refusal{Reason: fmt.Sprintf("key %s cannot sign yet: %v", key.ID, err), Remedy: remedy, Later: true}
}

// cached returns a *ring.Refusal while a cache may have a copy of the key set without the next key. Issuers
// are read once every host has published the key for long enough.
func (o *Operator) cached(ctx context.Context, rings hosts.Published, state ring.State, without []string) error {
	if err := rings.Cached(state, without, o.Policy.CacheAge, o.Clock.Now()); err != nil || o.ReadIssuer == nil {
		return err
	}
	issuers := o.Issuers
	if len(issuers) == 0 {
		issuers = []string{o.Issuer}
		if actual, err := keyprobe.LookUpIssuer(ctx, o.Cluster.Client); o.Issuer == "" && err == nil {
			issuers[0] = actual
		}
	}
	next, _ := state.Next()
	for _, issuer := range issuers {
		keys, err := o.ReadIssuer(ctx, issuer)
		if err != nil && len(o.Issuers) == 0 {
			continue // it is not public
		}
		result, detail := relying.Find(next.PublicKey, keys)
		if err != nil {
			result, detail = relying.Missing, err.Error()
		}
		if result != relying.Same {
			return &ring.Refusal{
				Reason: fmt.Sprintf("relying parties of %s do not have key %s: %s", issuer, next.ID, detail),
				Remedy: "have the keys of the ring published there (keys jwks --check)", Later: true,
				Breaks: "they refuse new tokens",
			}
		}
	}
	return nil
}
