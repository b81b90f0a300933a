// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"errors"
	"strconv"

	corev1 "k8s.io/api/core/v1"

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
