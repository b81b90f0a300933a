// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/internal/meta"
)

// Unregister switches the webhook off: both configurations get the annotation and lose their
// webhooks, so that no replica adds them until Register. The mutating one comes first, because its
// annotation alone stops all writing.
func Unregister(ctx context.Context, client kubernetes.Interface) error {
	for k := range kinds {
		err := edit(ctx, client, k, func(o *object) *object { return o.with(nil).annotated(AnnotationOff) })
		if err != nil {
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
		err := edit(ctx, client, k, func(o *object) *object {
			if o == nil {
				return o.with(nil)
			}
			return o.annotated("")
		})
		if err != nil {
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

// Delete deletes both configurations if they are switched off, once no replica runs that would
// create them again. It is a no-op if there are none.
func Delete(ctx context.Context, client kubernetes.Interface) error {
	// Both are checked before the first is deleted: either annotation stops all writing.
	found, err := getAll(ctx, client)
	if err != nil {
		return err
	}
	for k, o := range found {
		if o != nil && (!o.isOff() || len(o.entries) > 0) {
			return fmt.Errorf("the %s %s is not switched off", kind(k), Name)
		}
	}
	for k, o := range found {
		if o == nil {
			continue
		}
		if err := kind(k).in(client).remove(ctx, o); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete the %s %s: %w", kind(k), Name, err)
		}
	}
	return nil
}
