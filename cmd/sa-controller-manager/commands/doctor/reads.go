// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"sa-controller-manager/cmd/sa-controller-manager/commands/jwks"
	"sa-controller-manager/controllers/tokensecrets"
)

// pageSize bounds what is in memory at a time.
const pageSize = 500

// reads remembers what several checks need. What failed is tried again by the next one.
type reads struct {
	secrets  []tokenSecret
	accounts map[cache.ObjectName]types.UID
	keyIDs   sets.Set[string]
	rootCAs  *rootCAs
}

// tokenSecrets are all Secrets of the token type, without what must not be kept.
func (c *Cluster) tokenSecrets(ctx context.Context) ([]tokenSecret, error) {
	if c.read.secrets != nil {
		return c.read.secrets, nil
	}
	secrets := []tokenSecret{}
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.Client.CoreV1().Secrets(metav1.NamespaceAll).List(ctx, options)
	}
	options := metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)}
	err := each(ctx, list, options, func(secret *corev1.Secret) {
		// A fake apiserver may ignore field selectors, and a real one the type of old Secrets.
		if secret.Type == corev1.SecretTypeServiceAccountToken {
			secrets = append(secrets, observe(secret))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list token Secrets: %w", err)
	}
	c.read.secrets = secrets
	return secrets, nil
}

// accountUIDs are the UIDs of all ServiceAccounts.
func (c *Cluster) accountUIDs(ctx context.Context) (map[cache.ObjectName]types.UID, error) {
	if c.read.accounts != nil {
		return c.read.accounts, nil
	}
	uids := map[cache.ObjectName]types.UID{}
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.Client.CoreV1().ServiceAccounts(metav1.NamespaceAll).List(ctx, options)
	}
	err := each(ctx, list, metav1.ListOptions{}, func(account *corev1.ServiceAccount) {
		uids[cache.NewObjectName(account.Namespace, account.Name)] = account.UID
	})
	if err != nil {
		return nil, fmt.Errorf("list ServiceAccounts: %w", err)
	}
	c.read.accounts = uids
	return uids, nil
}

// knownKeyIDs are those of the keys that kube-apiserver verifies tokens with.
func (c *Cluster) knownKeyIDs(ctx context.Context) (sets.Set[string], error) {
	if c.read.keyIDs != nil {
		return c.read.keyIDs, nil
	}
	keys, err := jwks.OfCluster(ctx, c.Get)
	if err != nil {
		return nil, err
	}
	ids := sets.New[string]()
	for _, key := range keys {
		ids.Insert(key.ID)
	}
	c.read.keyIDs = ids
	return ids, nil
}

// each calls visit with every object of a list, page by page. Visit keeps none of it.
func each[T any](ctx context.Context, list pager.ListPageFunc, options metav1.ListOptions, visit func(*T)) error {
	pages := pager.New(list)
	pages.PageSize, pages.PageBufferSize = pageSize, 0
	return pages.EachListItem(ctx, options, func(object runtime.Object) error {
		visit(any(object).(*T))
		return nil
	})
}

// tokenSecret is what is kept of a token Secret. Neither the token nor anything that it
// could be made from is.
type tokenSecret struct {
	*tokensecrets.TokenSecret

	// bundle is the root CA in it, as a set of certificates.
	bundle bundle
	// filledBy wrote the token, at filledAt, as far as managedFields say.
	filledBy string
	filledAt time.Time
}

func observe(secret *corev1.Secret) tokenSecret {
	token := tokensecrets.DataWriters(secret.ManagedFields)[corev1.ServiceAccountTokenKey]
	return tokenSecret{
		TokenSecret: tokensecrets.Observe(secret), bundle: parseBundle(string(secret.Data[corev1.ServiceAccountRootCAKey])),
		filledBy: token.Manager, filledAt: token.At,
	}
}

func (s tokenSecret) name() string { return s.Namespace + "/" + s.Name }
