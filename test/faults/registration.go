// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
)

// registered is what kube-apiserver knows of the webhook.
type registered struct {
	Mutating   []admissionregistrationv1.MutatingWebhook
	Validating []admissionregistrationv1.ValidatingWebhook
}

// registration reads both configurations. One that is not there has no webhooks.
func (w *World) registration(ctx context.Context) (registered, error) {
	api := w.client.client.AdmissionregistrationV1()
	mutating, err := api.MutatingWebhookConfigurations().Get(ctx, configurationName, metav1.GetOptions{})
	if ignore(err, apierrors.IsNotFound) != nil {
		return registered{}, fmt.Errorf("get the mutating configuration: %w", err)
	}
	validating, err := api.ValidatingWebhookConfigurations().Get(ctx, configurationName, metav1.GetOptions{})
	if ignore(err, apierrors.IsNotFound) != nil {
		return registered{}, fmt.Errorf("get the validating configuration: %w", err)
	}
	return registered{mutating.Webhooks, validating.Webhooks}, nil
}

// equal compares what matters to kube-apiserver. caBundles may differ: a CA that was
// deleted has a successor.
func (r registered) equal(other registered) bool {
	return slices.EqualFunc(r.Mutating, other.Mutating, func(a, b admissionregistrationv1.MutatingWebhook) bool {
		return a.Name == b.Name && len(a.Rules) == len(b.Rules) && *a.ClientConfig.URL == *b.ClientConfig.URL && *a.FailurePolicy == *b.FailurePolicy
	}) && slices.EqualFunc(r.Validating, other.Validating, func(a, b admissionregistrationv1.ValidatingWebhook) bool {
		return a.Name == b.Name && len(a.Rules) == len(b.Rules) && *a.ClientConfig.URL == *b.ClientConfig.URL && *a.FailurePolicy == *b.FailurePolicy
	})
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

const (
	// repairLimit is how long a configuration may stay changed on a healthy watch.
	repairLimit = 2 * time.Second
	// raceFactor is how much slower a race-enabled build may be.
	raceFactor = 2
)

// awaitRepair returns once the registration is what it was, and reports it if that took
// longer than limit.
func (w *World) awaitRepair(ctx context.Context, kind Kind, before registered, limit time.Duration, also func(registered) error) error {
	if w.monitor.isRace() {
		limit *= raceFactor
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := await.Poll(ctx, func(ctx context.Context) error {
		now, err := w.registration(ctx)
		if err != nil {
			return err
		}
		if !now.equal(before) {
			return fmt.Errorf("%d mutating and %d validating webhooks are not what they were", len(now.Mutating), len(now.Validating))
		}
		return also(now)
	})
	if err != nil {
		w.report(violated(5, "%s is never repaired: %v", kind, err))
		return nil
	}
	if took := time.Since(begun); took > limit {
		w.report(violated(5, "%s is repaired after %v, want %v at most", kind, took.Round(time.Millisecond), limit))
	}
	return nil
}
