// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/internal/meta"
)

// Inspected is one configuration as the API has it, for commands.
type Inspected struct {
	Kind   string
	Exists bool
	// Off reports that the annotation switches it off.
	Off bool
	// Active reports that it holds more than the entry of the probe.
	Active bool
	// Entries counts its webhooks, that of the probe included.
	Entries int
}

// Inspect reads both configurations, the mutating one first.
func Inspect(ctx context.Context, client kubernetes.Interface) ([]Inspected, error) {
	found, err := getAll(ctx, client)
	if err != nil {
		return nil, err
	}
	var all []Inspected
	for k, o := range found {
		all = append(all, Inspected{
			Kind: kind(k).String(), Exists: o != nil, Off: o.isOff(), Active: o.binds(), Entries: len(o.webhooks()),
		})
	}
	return all, nil
}

// Answered reports whether a replica has answered the probe Pod.
func Answered(pod *corev1.Pod, id string) bool {
	return id != "" && strings.TrimPrefix(pod.Annotations[answerAnnotation], againPrefix) == id
}

// Concerns reports whether err is a refusal because of our webhook: it refused the request, or
// could not be called. The error text has the names of the entries.
func Concerns(err error) bool {
	return err != nil && slices.ContainsFunc([]string{mutateName, validateName, probeName},
		func(name string) bool { return strings.Contains(err.Error(), name) })
}

// IsInactive returns nil if kube-apiserver does not call the webhook.
func IsInactive(ctx context.Context, client kubernetes.Interface) error {
	found, err := Inspect(ctx, client)
	for _, one := range found {
		if one.Entries > 0 {
			return fmt.Errorf("the %s %s still binds a webhook", one.Kind, Name)
		}
	}
	return err
}

// Unregister switches the webhook off: both configurations get the annotation and lose their
// webhooks, so that no replica adds them until Register. The validating one comes first: its annotation
// alone stops all writing, and what is left in between completes Pods and refuses none.
func Unregister(ctx context.Context, client kubernetes.Interface) error {
	off := func(o *object) *object { return o.with(nil).annotated(AnnotationOff) }
	for _, k := range []kind{validating, mutating} {
		if err := edit(ctx, client, k, off); err != nil {
			return fmt.Errorf("switch off the %s %s: %w", k, Name, err)
		}
	}
	return nil
}

// Register removes the annotation of both configurations. The leader adds the webhooks as soon as
// it has proved that the apiserver reaches them. A missing configuration is created, empty: an
// object that was deleted while it was off counts as off for the leader that saw the deletion.
func Register(ctx context.Context, client kubernetes.Interface) error {
	for k := range kinds {
		if err := edit(ctx, client, k, func(o *object) *object {
			if o == nil {
				return o.with(nil)
			}
			return o.annotated("")
		}); err != nil {
			return fmt.Errorf("switch on the %s %s: %w", k, Name, err)
		}
	}
	return nil
}

func edit(ctx context.Context, client kubernetes.Interface, k kind, change func(*object) *object) error {
	lostRace := func(err error) bool {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
	}
	return meta.RetryWrite(lostRace, func() error {
		current, err := k.in(client).get(ctx)
		if err != nil {
			return err
		}
		return k.in(client).put(ctx, change(current))
	})
}
