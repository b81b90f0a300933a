// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

// registered is what kube-apiserver knows of the webhook.
type registered struct {
	Mutating   []admissionregistrationv1.MutatingWebhook
	Validating []admissionregistrationv1.ValidatingWebhook
}

// registration reads both configurations. One that is not there has no webhooks.
func (w *World) registration(ctx context.Context) (registered, error) {
	api := w.client.AdmissionregistrationV1()
	mutating, err := api.MutatingWebhookConfigurations().Get(ctx, workload.ConfigurationName, metav1.GetOptions{})
	if workload.Ignore(err, apierrors.IsNotFound) != nil {
		return registered{}, fmt.Errorf("get the mutating configuration: %w", err)
	}
	validating, err := api.ValidatingWebhookConfigurations().Get(ctx, workload.ConfigurationName, metav1.GetOptions{})
	if workload.Ignore(err, apierrors.IsNotFound) != nil {
		return registered{}, fmt.Errorf("get the validating configuration: %w", err)
	}
	return registered{mutating.Webhooks, validating.Webhooks}, nil
}

// awaitRegistered returns both configurations once each has its one webhook. While kube-apiserver is
// asked to prove that it reaches the webhook, the mutating one has a second, and the webhook of each
// leaves out the probe.
func (w *World) awaitRegistered(ctx context.Context) (state registered, err error) {
	ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
	defer cancel()
	err = await.Poll(ctx, func(ctx context.Context) error {
		state, err = w.registration(ctx)
		switch {
		case err != nil:
			return err
		case len(state.Mutating) != 1 || len(state.Validating) != 1:
			return fmt.Errorf("the configurations have %d and %d webhooks, want one each", len(state.Mutating), len(state.Validating))
		case slices.ContainsFunc(state.Validating[0].MatchConditions, leavesOutProbe):
			return errors.New("the validating webhook leaves out the probe")
		}
		return nil
	})
	if err != nil {
		return state, fmt.Errorf("await the registration: %w", err)
	}
	return state, nil
}

func leavesOutProbe(c admissionregistrationv1.MatchCondition) bool {
	return c.Name == "except-the-probe"
}

// differs says what is not as in other, but for caBundles. A CA that was deleted has a successor, so
// those only have to be good.
func (r registered) differs(other registered) string {
	return cmp.Diff(other, r, cmpopts.IgnoreFields(admissionregistrationv1.WebhookClientConfig{}, "CABundle"), cmpopts.EquateEmpty())
}

// bundles are those of all webhooks.
func (r registered) bundles() []string {
	var all []string
	for _, webhook := range r.Mutating {
		all = append(all, string(webhook.ClientConfig.CABundle))
	}
	for _, webhook := range r.Validating {
		all = append(all, string(webhook.ClientConfig.CABundle))
	}
	return all
}

// verify has each caBundle verify what each replica serves with, as kube-apiserver does.
func (w *World) verify(ctx context.Context, now registered) error {
	for _, bundle := range now.bundles() {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(bundle)) {
			return errors.New("a caBundle has no certificate")
		}
		dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}}
		for _, r := range w.all() {
			limit, cancel := context.WithTimeout(ctx, answerLimit)
			conn, err := dialer.DialContext(limit, "tcp", at(r.address, w.port))
			cancel()
			if err != nil {
				return fmt.Errorf("a caBundle does not verify %s: %w", r.name, err)
			}
			_ = conn.Close() // nothing was sent
		}
	}
	return nil
}

const (
	// repairLimit is how long a configuration may stay changed on a healthy watch.
	repairLimit = 2 * time.Second
	// answerLimit is for one handshake with a replica.
	answerLimit = 2 * time.Second
	// raceFactor is how much slower a race-enabled build may be.
	raceFactor = 2
)

// awaitRepair returns once the registration is what it was, and reports it if that took
// longer than limit.
func (w *World) awaitRepair(ctx context.Context, kind checker.Kind, before registered, limit time.Duration,
	also func(registered) error) error {
	if w.monitor.isRace() {
		limit *= raceFactor
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	err := await.Poll(ctx, func(ctx context.Context) error {
		now, err := w.registration(ctx)
		if err != nil {
			return err
		}
		if differ := now.differs(before); differ != "" {
			return fmt.Errorf("not what it was:\n%s", differ)
		}
		return errors.Join(also(now), w.verify(ctx, now))
	})
	if err != nil {
		w.report(checker.Violated(5, "%s is never repaired: %v", kind, err))
		return nil
	}
	took := time.Since(begun)
	if took <= limit {
		return nil
	}
	late := checker.Violated(5, "%s is repaired after %v, want %v at most", kind, took.Round(time.Millisecond), limit)
	if w.Busy {
		w.noteUnsure(fmt.Errorf("%v, but other programs may have used the machine", late))
		return nil
	}
	w.report(late)
	return nil
}
