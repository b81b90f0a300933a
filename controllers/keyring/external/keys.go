// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"
	"k8s.io/utils/clock"

	"sa-controller-manager/signing"
)

// decoy is a key whose private half was never kept. It is the answer when revocations have left no key:
// kube-apiserver takes an answer without keys for an error, and then keeps the revoked ones.
var decoy = sync.OnceValues(func() (signing.PublicKey, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return signing.PublicKey{}, err
	}
	return signing.NewPublicKey(private.Public())
})

// snapshot is an immutable key set with its encoded answer.
type snapshot struct {
	of     *signing.KeySet
	answer *externaljwtv1.FetchKeysResponse
}

// keyCache encodes each key set once: kube-apiserver fetches the keys whenever a token has an unknown
// key ID, and any client can send it such tokens.
type keyCache struct {
	source      signing.KeySource
	clock       clock.PassiveClock
	refreshHint time.Duration // as announced to kube-apiserver, in whole seconds
	current     atomic.Pointer[snapshot]
}

// get returns the current keys. It reads memory only.
//
// DataTimestamp is when these keys were first returned, and stays while they do: kube-apiserver
// rebuilds its discovery document whenever it changes
// (pkg/serviceaccount/externaljwt/plugin/keycache.go).
func (c *keyCache) get() (*externaljwtv1.FetchKeysResponse, error) {
	set := c.source.Keys()
	previous := c.current.Load()
	if previous != nil && previous.of == set {
		return previous.answer, nil
	}
	keys, err := encodeKeys(set)
	if err != nil {
		return nil, err
	}
	next := &snapshot{of: set, answer: &externaljwtv1.FetchKeysResponse{
		Keys:               keys,
		DataTimestamp:      timestamppb.New(c.clock.Now()),
		RefreshHintSeconds: int64(c.refreshHint.Seconds()),
	}}
	if c.current.CompareAndSwap(previous, next) {
		return next.answer, nil
	}
	return c.get() // another call was faster, and has set the time
}

func encodeKeys(set *signing.KeySet) ([]*externaljwtv1.Key, error) {
	all := set.All()
	if len(all) == 0 {
		key, err := decoy()
		if err != nil {
			return nil, err
		}
		all = []signing.PublicKey{key}
	}
	keys := make([]*externaljwtv1.Key, 0, len(all))
	for _, key := range all {
		der, err := x509.MarshalPKIXPublicKey(key.Key)
		if err != nil {
			return nil, fmt.Errorf("encode public key %s: %w", key.ID, err)
		}
		keys = append(keys, &externaljwtv1.Key{KeyId: key.ID, Key: der})
	}
	return keys, nil
}
