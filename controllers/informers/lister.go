// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"k8s.io/client-go/tools/cache"
)

// byAccount indexes token Secrets by the account that their annotation names.
const byAccount = "account"

// TokenSecretLister reads the cached token Secrets.
type TokenSecretLister struct {
	indexer cache.Indexer
}

// NewTokenSecretLister lists what is in indexer, for tests that fill one by hand.
func NewTokenSecretLister(secrets ...*TokenSecret) TokenSecretLister {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byAccount: indexByAccount})
	for _, secret := range secrets {
		_ = indexer.Add(secret) // an indexer in memory fails only on objects without metadata
	}
	return TokenSecretLister{indexer}
}

// Get is the cached token Secret of that name, nil if there is none.
func (l TokenSecretLister) Get(name cache.ObjectName) *TokenSecret {
	obj, exists, err := l.indexer.GetByKey(name.String())
	if err != nil || !exists {
		return nil
	}
	return obj.(*TokenSecret)
}

// OfAccount are the token Secrets that name the account, whatever UID they bear.
func (l TokenSecretLister) OfAccount(account cache.ObjectName) []*TokenSecret {
	objs, err := l.indexer.ByIndex(byAccount, account.String())
	if err != nil {
		return nil // the index exists: NewTokenSecretLister and View.TokenSecrets add it
	}
	secrets := make([]*TokenSecret, len(objs))
	for i, obj := range objs {
		secrets[i] = obj.(*TokenSecret)
	}
	return secrets
}

// Names are the names of all cached token Secrets.
func (l TokenSecretLister) Names() []cache.ObjectName {
	keys := l.indexer.ListKeys()
	names := make([]cache.ObjectName, 0, len(keys))
	for _, key := range keys {
		if name, err := cache.ParseObjectName(key); err == nil {
			names = append(names, name)
		}
	}
	return names
}

func indexByAccount(obj any) ([]string, error) {
	secret, ok := obj.(*TokenSecret)
	if !ok || secret.AccountName == "" {
		return nil, nil
	}
	return []string{secret.Account().String()}, nil
}
