// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/signing"
)

// Members of the ConfigMap's data. It holds no key.
const (
	generationKey = "generation"
	hashKey       = "hash"
	activeKey     = "active"
)

// drift is how the ring of this process stands to the one that the leader has published.
type drift string

const (
	// inSync: it is the same one.
	inSync drift = "agreed"
	// unpublished: nobody has published one.
	unpublished drift = "unpublished"
	// ahead: this one is newer, so the leader is to publish or to be brought up to date.
	ahead drift = "ahead"
	// behind: this one is older.
	behind drift = "behind"
	// forked: the two say different things and neither is newer.
	forked drift = "forked"
	// unreadable: what is published is not what this program writes.
	unreadable drift = "unreadable"
)

// mayPublish reports whether what is published may be replaced by this ring.
func (d drift) mayPublish() bool { return d == unpublished || d == ahead }

// publishedRing is the summary of a ring that the leader publishes.
type publishedRing struct {
	generation int64
	hash       string
}

func summaryOf(ring *signing.Ring) publishedRing {
	return publishedRing{generation: ring.Generation(), hash: ring.Hash()}
}

// data renders the ring for the ConfigMap.
func (p publishedRing) data(active string) map[string]string {
	return stateobject.Stamp(map[string]string{
		generationKey: strconv.FormatInt(p.generation, 10), hashKey: p.hash, activeKey: active,
	})
}

func readPublishedRing(configMap *corev1.ConfigMap) (publishedRing, error) {
	fields, err := stateobject.Read(configMap.Data)
	if err != nil {
		return publishedRing{}, err
	}
	generation, err := strconv.ParseInt(fields.Get(generationKey), 10, 64)
	if err != nil {
		fields.Damaged(generationKey, errors.New("want a number"))
	}
	if fields.Get(hashKey) == "" {
		fields.Damaged(hashKey, errors.New("it is missing"))
	}
	if damage := fields.Damage(); damage != "" {
		return publishedRing{}, errors.New(damage)
	}
	return publishedRing{generation: generation, hash: fields.Get(hashKey)}, nil
}

// compare holds the ring of this process against what is published; nil if nothing is.
// The generation decides which one is newer. That two rings of different generations have
// the same keys in the same roles makes neither of them stale.
func compare(own publishedRing, published *corev1.ConfigMap) drift {
	if published == nil {
		return unpublished
	}
	theirs, err := readPublishedRing(published)
	switch {
	case err != nil:
		return unreadable
	case own.generation > theirs.generation:
		return ahead
	case own.generation < theirs.generation:
		return behind
	case own.hash != theirs.hash:
		return forked
	}
	return inSync
}

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
