// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/cmd/sa-controller-manager/commands/keys"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/paging"
)

// reads caches what several checks need.
type reads struct {
	secrets  once[[]tokenSecret]
	accounts once[map[cache.ObjectName]types.UID]
	keyIDs   once[sets.Set[string]]
	rootCAs  once[*rootCAs]
}

// once caches a read. A read that failed is tried again by the next check.
type once[T any] struct {
	value T
	known bool
}

func (o *once[T]) get(ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	var err error
	if !o.known {
		o.value, err = read(ctx)
		o.known = err == nil
	}
	return o.value, err
}

// tokenSecrets returns all token Secrets, without the tokens.
func (c *cluster) tokenSecrets(ctx context.Context) ([]tokenSecret, error) {
	return c.read.secrets.get(ctx, func(ctx context.Context) (secrets []tokenSecret, err error) {
		list := c.Client.CoreV1().Secrets(metav1.NamespaceAll).List
		options := metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)}
		err = paging.Each(ctx, "token Secrets", list, options, func(page *corev1.SecretList) error {
			for i := range page.Items {
				one := &page.Items[i]
				secrets = append(secrets, tokenSecret{tokensecrets.Observe(one), parseBundle(string(one.Data[corev1.ServiceAccountRootCAKey]))})
			}
			return nil
		})
		return secrets, err
	})
}

// accountUIDs returns the UIDs of all ServiceAccounts.
func (c *cluster) accountUIDs(ctx context.Context) (map[cache.ObjectName]types.UID, error) {
	return c.read.accounts.get(ctx, func(ctx context.Context) (map[cache.ObjectName]types.UID, error) {
		uids := map[cache.ObjectName]types.UID{}
		list := c.Client.CoreV1().ServiceAccounts(metav1.NamespaceAll).List
		return uids, paging.Each(ctx, "ServiceAccounts", list, metav1.ListOptions{}, func(page *corev1.ServiceAccountList) error {
			for i := range page.Items {
				uids[cache.MetaObjectToName(&page.Items[i])] = page.Items[i].UID
			}
			return nil
		})
	})
}

// knownKeyIDs returns the IDs of the keys with which kube-apiserver verifies tokens.
func (c *cluster) knownKeyIDs(ctx context.Context) (sets.Set[string], error) {
	return c.read.keyIDs.get(ctx, func(ctx context.Context) (sets.Set[string], error) { return publishedIDs(ctx, c.Get) })
}

// publishedIDs are those of the keys of a kube-apiserver, which get asks for a path.
func publishedIDs(ctx context.Context, get func(context.Context, string) ([]byte, error)) (sets.Set[string], error) {
	published, err := keys.OfCluster(ctx, get)
	ids := sets.New[string]()
	for _, key := range published {
		ids.Insert(key.ID)
	}
	return ids, err
}

// tokenSecret is what is kept of a token Secret: never the token, nor anything that it could be
// restored from.
type tokenSecret struct {
	*tokensecrets.TokenSecret

	// bundle is the root CA in the Secret, as a set of certificates.
	bundle bundle
}

func (s tokenSecret) name() string { return s.Namespace + "/" + s.Name }
