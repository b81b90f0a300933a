// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"hash/maphash"
	"slices"
	"strconv"

	"k8s.io/client-go/tools/cache"
)

// byAccount indexes token Secrets by a hash of the account that their annotation names: a set for each
// account, mostly of one Secret, would take as much memory as half of the Secrets.
const (
	byAccount = "account"
	buckets   = 1 << 14
)

var seed = maphash.MakeSeed()

func bucket(account cache.ObjectName) string {
	return strconv.FormatUint(maphash.Comparable(seed, account)%buckets, 36)
}

// Lister reads the cached token Secrets.
type Lister struct {
	indexer cache.Indexer
}

// Indexers returns the indexers that ListerOf needs.
func Indexers() cache.Indexers { return cache.Indexers{byAccount: indexByAccount} }

// ListerOf returns a Lister of an indexer with Indexers that holds *TokenSecret.
func ListerOf(indexer cache.Indexer) Lister { return Lister{indexer} }

// Get returns the cached token Secret of that name, nil if there is none.
func (l Lister) Get(name cache.ObjectName) *TokenSecret {
	obj, exists, err := l.indexer.GetByKey(name.String())
	if err != nil || !exists {
		return nil
	}
	return obj.(*TokenSecret)
}

// OfAccount returns the token Secrets that name the account, with any UID.
func (l Lister) OfAccount(account cache.ObjectName) []*TokenSecret {
	objs, err := l.indexer.ByIndex(byAccount, bucket(account))
	if err != nil {
		return nil // the index exists: see Indexers
	}
	return slices.DeleteFunc(typed(objs), func(secret *TokenSecret) bool { return secret.Account() != account })
}

// All returns all cached token Secrets.
func (l Lister) All() []*TokenSecret { return typed(l.indexer.List()) }

func typed(objs []any) []*TokenSecret {
	secrets := make([]*TokenSecret, len(objs))
	for i, obj := range objs {
		secrets[i] = obj.(*TokenSecret)
	}
	return secrets
}

func indexByAccount(obj any) ([]string, error) {
	secret, ok := obj.(*TokenSecret)
	if !ok || secret.AccountName == "" {
		return nil, nil
	}
	return []string{bucket(secret.Account())}, nil
}
