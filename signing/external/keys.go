// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external

import (
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"sa-controller-manager/signing"
)

// errNoKeys is an empty key set. kube-apiserver takes an answer without keys for an error of its
// own.
var errNoKeys = errors.New("there is no verification key")

// encodedKey is a key as both versions of the service send it.
type encodedKey struct {
	id  string
	der []byte // PKIX
}

// snapshot is a key set in the form in which it is sent. It is immutable.
type snapshot struct {
	of    *signing.KeySet
	taken time.Time
	keys  []encodedKey
}

// keyCache encodes each key set once: kube-apiserver asks for the keys whenever a token names a key
// that it does not know, and anybody can send it such tokens.
type keyCache struct {
	source  signing.KeySource
	clock   clock.PassiveClock
	current atomic.Pointer[snapshot]
}

// get returns the present keys. It reads memory only.
//
// Its time is that at which these keys were first seen, and stays for as long as they do:
// kube-apiserver builds its discovery document anew whenever the time changes
// (pkg/serviceaccount/externaljwt/plugin/keycache.go).
func (c *keyCache) get() (*snapshot, error) {
	set := c.source.Keys()
	previous := c.current.Load()
	if previous != nil && previous.of == set {
		return previous, nil
	}
	keys, err := encodeKeys(set)
	if err != nil {
		return nil, err
	}
	next := &snapshot{of: set, taken: c.clock.Now(), keys: keys}
	if c.current.CompareAndSwap(previous, next) {
		return next, nil
	}
	return c.get() // another call was faster, and has set the time
}

func encodeKeys(set *signing.KeySet) ([]encodedKey, error) {
	all := set.All()
	if len(all) == 0 {
		return nil, errNoKeys
	}
	keys := make([]encodedKey, 0, len(all))
	for _, key := range all {
		der, err := x509.MarshalPKIXPublicKey(key.Key)
		if err != nil {
			return nil, fmt.Errorf("encode public key %s: %w", key.ID, err)
		}
		keys = append(keys, encodedKey{id: key.ID, der: der})
	}
	return keys, nil
}
