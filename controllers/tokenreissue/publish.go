// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/meta"
)

// publish makes the ring of this process known to all replicas if it is the newest, and
// finds out whether it may be acted on. The cache is not asked: a leader begins with
// what its predecessor wrote last.
func (c *Controller) publish(ctx context.Context) error {
	ring := c.Ring.Ring()
	own := summaryOf(ring)
	c.published = publishedRing{}
	live, err := c.livePublishedRing(ctx)
	if err != nil {
		return err
	}
	found := compare(own, live)
	logger := klog.FromContext(ctx).WithValues("generation", own.generation, "hash", own.hash, "active", ring.ActiveID())
	if found.mayPublish() {
		if err := c.write(ctx, live, own.data(ring.ActiveID())); err != nil {
			return fmt.Errorf("publish the key ring in config map %s/%s: %w", metav1.NamespaceSystem, informers.KeyRingName, err)
		}
		logger.Info("Published the key ring")
		found = inSync
	}
	if found == inSync {
		c.published = own
	} else {
		logger.Info("No token Secret is re-issued, because the key ring is not the one that was published", "verdict", found)
	}
	c.loop.Add(key{Work: surveying})
	return nil
}

// livePublishedRing is nil if there is none.
func (c *Controller) livePublishedRing(ctx context.Context) (*corev1.ConfigMap, error) {
	live, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, informers.KeyRingName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up the published key ring, in config map %s/%s: %w", metav1.NamespaceSystem, informers.KeyRingName, err)
	}
	return live, nil
}

// write replaces the very version that was judged.
func (c *Controller) write(ctx context.Context, live *corev1.ConfigMap, data map[string]string) error {
	configMaps := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	if live == nil {
		_, err := configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: informers.KeyRingName}, Data: data,
		}, metav1.CreateOptions{FieldManager: meta.FieldManager})
		return err
	}
	next := live.DeepCopy()
	next.Data = data
	_, err := configMaps.Update(ctx, next, metav1.UpdateOptions{FieldManager: meta.FieldManager})
	return err
}
