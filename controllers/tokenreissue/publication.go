// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Members of the ConfigMap's data. It holds no key.
const (
	schemaKey     = "schema-version"
	generationKey = "generation"
	hashKey       = "hash"
	activeKey     = "active"

	schemaVersion = "1"
)

// verdict is how this process's ring stands to the one that the leader has published.
type verdict string

const (
	// agreed: it is the same one.
	agreed verdict = "agreed"
	// unpublished: nobody has published one.
	unpublished verdict = "unpublished"
	// ahead: this one is newer, so the leader is to publish or to be brought up to date.
	ahead verdict = "ahead"
	// behind: this one is older.
	behind verdict = "behind"
	// forked: the two say different things and neither is newer.
	forked verdict = "forked"
	// unreadable: what is published is not what this program writes.
	unreadable verdict = "unreadable"
)

// mayPublish: what is published may be replaced by this ring.
func (v verdict) mayPublish() bool { return v == unpublished || v == ahead }

// publication is what the leader says of its ring.
type publication struct {
	generation int64
	hash       string
}

func publicationOf(ring Ring) publication {
	return publication{generation: ring.Generation(), hash: ring.Hash()}
}

// data renders the ring for the ConfigMap.
func (p publication) data(ring Ring) map[string]string {
	return map[string]string{
		schemaKey: schemaVersion, generationKey: strconv.FormatInt(p.generation, 10), hashKey: p.hash, activeKey: ring.ActiveID(),
	}
}

func readPublication(configMap *corev1.ConfigMap) (publication, error) {
	if version := configMap.Data[schemaKey]; version != schemaVersion {
		return publication{}, fmt.Errorf("its %s is %q, want %q", schemaKey, version, schemaVersion)
	}
	generation, err := strconv.ParseInt(configMap.Data[generationKey], 10, 64)
	if err != nil || configMap.Data[hashKey] == "" {
		return publication{}, fmt.Errorf("its %s or its %s is missing or damaged", generationKey, hashKey)
	}
	return publication{generation: generation, hash: configMap.Data[hashKey]}, nil
}

// judge compares the ring of this process with what is published; nil if nothing is.
// The generation decides who is newer. That two rings of different generations have
// the same keys in the same roles makes neither of them stale.
func judge(own publication, published *corev1.ConfigMap) verdict {
	if published == nil {
		return unpublished
	}
	theirs, err := readPublication(published)
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
	return agreed
}
