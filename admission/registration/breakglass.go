// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// Unregister takes the webhook out: both configurations hold no webhooks and the
// annotation, so that no replica fills them until Register. The mutating one comes
// first, because its annotation is enough to stop all.
func Unregister(ctx context.Context, client kubernetes.Interface) error {
	for k := range kinds {
		err := edit(ctx, client, k, func(o *object) *object { return o.with(nil).annotated(AnnotationOff) })
		if err != nil {
			return fmt.Errorf("switch off the %s %s: %w", k, Name, err)
		}
	}
	return nil
}

// Register takes the annotation of both configurations back. The leader fills them then
// as soon as it has proved that the apiserver reaches it. One that is missing is made,
// empty: an object that was deleted while it was off counts as off to the leader that
// saw it.
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
	return retry.OnError(retry.DefaultBackoff, lostRace, func() error {
		current, err := get(ctx, client, k)
		if err != nil {
			return err
		}
		return change(current).put(ctx, client, k)
	})
}
