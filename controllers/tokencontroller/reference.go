// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/paging"
	"sa-controller-manager/internal/reconcile"
)

const (
	// fewReferences is how many Secrets a sync reads one by one. More are listed, once in listPeriod for each namespace.
	fewReferences = 8
	listPeriod    = 10 * time.Second
	listPage      = 50
)

// errAccountBehind: the reference was written so recently that the cached account
// does not show it yet.
var errAccountBehind = fmt.Errorf("the cached account does not show its newest token reference yet: %w", reconcile.ErrStaleCache)

// deletions are Secrets whose deletion a watch has shown, with the UIDs of their accounts, by account. It is safe for concurrent
// use.
type deletions struct {
	mu  sync.Mutex
	all map[cache.ObjectName]map[string]types.UID
}

// add notes a deletion. A Secret without UID was never filled: a user may have listed it in advance.
func (d *deletions) add(secret *tokensecrets.TokenSecret) {
	if secret.AccountUID != "" && secret.AccountName != "" {
		d.merge(secret.Account(), map[string]types.UID{secret.Name: secret.AccountUID})
	}
}

func (d *deletions) merge(account cache.ObjectName, secrets map[string]types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[cache.ObjectName]map[string]types.UID{}
	}
	if d.all[account] == nil {
		d.all[account] = map[string]types.UID{}
	}
	maps.Copy(d.all[account], secrets)
}

// take returns what was noted for an account and forgets it.
func (d *deletions) take(account cache.ObjectName) map[string]types.UID {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer delete(d.all, account)
	return d.all[account]
}

// syncReferences removes all references of an account to Secrets that are gone, or whose names Secrets of other accounts have
// now, with one patch. What could not be done yet is kept for the next sync.
func (c *Controller) syncReferences(ctx context.Context, name cache.ObjectName) error {
	observed := c.observed.take(name)
	account := meta.CachedAccount(c.accounts, name)
	if account == nil {
		return nil
	}
	referenced := tokensecrets.ReferencedBy(account)
	made, _ := c.created.get(name, string(account.UID))
	maps.DeleteFunc(observed, func(secret string, uid types.UID) bool {
		return uid != account.UID || !referenced.Has(secret) && secret != made.secret
	})
	_, deleted := observed[made.secret]
	behind := deleted && !referenced.Has(made.secret)

	gone, ask := c.dangling(account, observed)
	there, left, err := c.liveTypes(ctx, account, ask)
	if err == nil && left == 0 {
		for _, secret := range ask {
			if _, lives := there[secret]; !lives {
				gone = append(gone, secret)
			}
		}
		err = c.dereference(ctx, account, gone)
	}
	if err == nil && behind {
		err = errAccountBehind
	}
	if err != nil || left > 0 {
		c.observed.merge(name, observed)
	}
	if left > 0 {
		c.referenceLoop.AddAfter(name, left)
	}
	return err
}

// dangling returns the references to remove, and those to remove unless there is a Secret of the name. A secrets list also names
// Secrets of other types and some that are not created yet. So the deletion of the Secret was observed, or token controllers alone
// have written the entry; the doctor command shows the rest (tokensecrets.UnattributedReferences). A user's entry may be for the next
// Secret of that name, perhaps of another type.
func (c *Controller) dangling(account *corev1.ServiceAccount, observed map[string]types.UID) (gone, ask []string) {
	written := tokensecrets.WrittenReferences(account.ManagedFields)
	for secret, held := range c.missing(account) {
		_, deleted := observed[secret]
		switch ours := written.Has(secret); {
		case ours && (deleted || held != nil):
			gone = append(gone, secret)
		case held == nil && (ours || deleted):
			ask = append(ask, secret)
		}
	}
	return gone, ask
}

// mayDangle reports whether the account may have references to remove although no deletion was seen. kube-apiserver keeps
// managedFields of no account that was created without any field, as default accounts are: who wrote its references is not known.
func (c *Controller) mayDangle(account *corev1.ServiceAccount) bool {
	if len(account.ManagedFields) == 0 {
		return false
	}
	gone, ask := c.dangling(account, nil)
	return len(gone)+len(ask) > 0
}

// missing returns the references to Secrets that the cache of token Secrets lacks or has for another
// account. What can be no name of a Secret is left out: no request can be made of it.
func (c *Controller) missing(account *corev1.ServiceAccount) iter.Seq2[string, *tokensecrets.TokenSecret] {
	return func(yield func(string, *tokensecrets.TokenSecret) bool) {
		for _, ref := range account.Secrets {
			held := c.secrets.Get(cache.NewObjectName(account.Namespace, ref.Name))
			if (held == nil || held.AccountName != account.Name) && len(validation.IsDNS1123Subdomain(ref.Name)) == 0 &&
				!yield(ref.Name, held) {
				return
			}
		}
	}
}

// liveTypes returns the types of those of the Secrets, which the account names, that kube-apiserver has, or how long to wait before it
// may be asked. Of more than a few it is asked with one list, which does not say the types: they are "". What it lacks is not asked
// for again for this version of the account.
func (c *Controller) liveTypes(ctx context.Context, account *corev1.ServiceAccount, secrets []string) (
	there map[string]corev1.SecretType, left time.Duration, err error,
) {
	name, version := cache.MetaObjectToName(account), string(account.UID)+"/"+account.ResourceVersion
	known, _ := c.gone.get(name, version)
	ask, gone := sets.List(sets.New(secrets...).Difference(known)), sets.New[string]()
	there = map[string]corev1.SecretType{}
	if len(ask) <= fewReferences {
		for _, secret := range ask {
			live, failed := tokensecrets.LiveSecret(ctx, c.Client, cache.NewObjectName(account.Namespace, secret))
			if err = failed; err != nil {
				break // what was read before is kept
			}
			if gone.Insert(secret); live != nil {
				there[secret] = live.Type
			}
		}
	} else {
		if left = c.lists.Delay(account.Namespace); left > 0 {
			return nil, left, nil
		}
		c.lists.Wrote(account.Namespace)
		if err := c.listTypes(ctx, account.Namespace, there); err != nil {
			return nil, 0, err
		}
		gone.Insert(ask...)
		maps.DeleteFunc(there, func(secret string, _ corev1.SecretType) bool { return !gone.Has(secret) })
	}
	if len(gone) > 0 {
		c.gone.set(name, version, gone.Difference(sets.KeySet(there)).Union(known))
		if meta.CachedAccount(c.accounts, name) == nil {
			c.gone.forget(name) // another loop has seen its deletion meanwhile
		}
	}
	return there, 0, err
}

// listTypes lists the metadata of all Secrets of the namespace. Their data and annotations are their users' to choose, so they
// would decide how much memory a longer page takes.
func (c *Controller) listTypes(ctx context.Context, namespace string, types map[string]corev1.SecretType) error {
	secrets := c.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace)
	return paging.Each(ctx, "secrets", secrets.List,
		metav1.ListOptions{Limit: listPage}, func(page *metav1.PartialObjectMetadataList) error {
			for i := range page.Items {
				types[page.Items[i].Name] = ""
			}
			return nil
		})
}

// dereference removes entries. A conflict is an error here, so that the key is retried: no later
// event would queue it.
func (c *Controller) dereference(ctx context.Context, account *corev1.ServiceAccount, gone []string) error {
	if len(gone) == 0 {
		return nil
	}
	names := sets.New(gone...)
	err := patchReferences(ctx, c.Client, account, without(account, names))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return c.refused(referenceTo(account),
			fmt.Errorf("remove references to %d token secrets from service account %s/%s: %w", len(names), account.Namespace, account.Name,
				err))
	}
	c.Metrics.dereferenced.Add(float64(len(names)))
	klog.FromContext(ctx).V(2).Info("Removed token references", "serviceAccount", klog.KObj(account), "count", len(names))
	c.Recorder.Normal(referenceTo(account), "TokenReferenceRemoved",
		"removed the references to token Secrets that are deleted: "+strings.Join(sets.List(names), ", "))
	return nil
}

func referenceTo(account *corev1.ServiceAccount) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name, UID: account.UID,
	}
}
