// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/paging"
)

const (
	// gets are how many orphans a second have their accounts read one by one; further ones wait for a
	// list, which is less work for kube-apiserver if many accounts are deleted at once.
	gets = 10

	// collectPeriod is the time in which no further orphan comes before the accounts are listed, and
	// collectPeriods is how often it is waited for.
	collectPeriod  = 50 * time.Millisecond
	collectPeriods = 5

	// listedPerGet is how many accounts are listed with less work than one GET, for kube-apiserver and
	// this process together: half of what was measured.
	listedPerGet = 50
)

// lookup is what was found of the account of one version of a Secret.
type lookup struct {
	ended   bool
	listed  bool                   // or else the account has to be read by itself
	account *corev1.ServiceAccount // nil if there is none
}

// lookUp reads the account of an orphan from kube-apiserver, nil if there is none. It is not known
// yet if the Secret waits for a list, which queues it again.
//
// Only a Secret with a UID waits: accounts that are created after the list have other UIDs.
func (c *Controller) lookUp(ctx context.Context, secret *tokensecrets.TokenSecret) (account *corev1.ServiceAccount, known bool, err error) {
	name := secret.ObjectName()
	found, asked := c.lookups.get(name, version(secret))
	switch {
	case found.ended:
		c.lookups.forget(name)
		if found.listed {
			return found.account, true, nil
		}
	case asked:
		return nil, false, nil
	case secret.AccountUID != "" && !c.gets.AllowN(c.Clock.Now(), 1):
		c.lookups.set(name, version(secret), lookup{})
		c.asked.Add(1)
		c.lookupLoop.AddAfter(lookupKey{}, collectPeriod)
		return nil, false, nil
	}
	account, err = meta.LiveAccount(ctx, c.Client, secret.Account())
	return account, err == nil, err
}

// lookupKey is the one key of the queue for lists.
type lookupKey struct{}

// syncLookups lists the accounts of the Secrets that wait, once there are no more of them: those of
// the cluster, or of a namespace, or none where that is more work than to read each.
func (c *Controller) syncLookups(ctx context.Context, key lookupKey) error {
	if asked := c.asked.Load(); asked != c.collected.asked && c.collected.periods < collectPeriods {
		c.collected.asked, c.collected.periods = asked, c.collected.periods+1
		c.lookupLoop.AddAfter(key, collectPeriod)
		return nil
	}
	c.collected.periods = 0
	waiting := c.waitingForList()
	if c.list(ctx, metav1.NamespaceAll, waiting) {
		return nil
	}
	ofNamespace := map[string][]*tokensecrets.TokenSecret{}
	for _, secret := range waiting {
		ofNamespace[secret.Namespace] = append(ofNamespace[secret.Namespace], secret)
	}
	for namespace, secrets := range ofNamespace {
		if c.list(ctx, namespace, secrets) {
			continue
		}
		for _, secret := range secrets {
			c.found(secret, lookup{ended: true})
		}
	}
	return nil
}

// waitingForList returns the Secrets that wait and have not changed since.
func (c *Controller) waitingForList() []*tokensecrets.TokenSecret {
	var waiting []*tokensecrets.TokenSecret
	for name, asked := range c.lookups.copied() {
		if secret := c.secrets.Get(name); secret != nil && version(secret) == asked.version && !asked.value.ended {
			waiting = append(waiting, secret)
		}
	}
	return waiting
}

// list lists the accounts of a namespace, or of all, for these Secrets, and reports whether it did.
func (c *Controller) list(ctx context.Context, namespace string, secrets []*tokensecrets.TokenSecret) bool {
	if len(secrets) < 2 || c.countAccounts(namespace) > listedPerGet*len(secrets) {
		return false
	}
	live := map[cache.ObjectName]*corev1.ServiceAccount{}
	for _, secret := range secrets {
		live[secret.Account()] = nil
	}
	err := paging.Each(ctx, "service accounts", c.Client.CoreV1().ServiceAccounts(namespace).List, metav1.ListOptions{},
		func(page *corev1.ServiceAccountList) error {
			for i := range page.Items {
				name := cache.MetaObjectToName(&page.Items[i])
				if _, asked := live[name]; asked {
					live[name] = page.Items[i].DeepCopy() // which does not keep the page
				}
			}
			return nil
		})
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to list accounts, reading each", "err", err)
		return false
	}
	for _, secret := range secrets {
		c.found(secret, lookup{ended: true, listed: true, account: live[secret.Account()]})
	}
	return true
}

// countAccounts returns how many accounts the cache has of a namespace, or of all.
func (c *Controller) countAccounts(namespace string) int {
	if namespace == metav1.NamespaceAll {
		return len(c.accountInformer.GetIndexer().ListKeys())
	}
	names, _ := c.accountInformer.GetIndexer().IndexKeys(cache.NamespaceIndex, namespace) // the index exists
	return len(names)
}

// found queues the Secret, unless it has changed meanwhile: then it was queued, and asks again.
func (c *Controller) found(secret *tokensecrets.TokenSecret, found lookup) {
	if c.lookups.replace(secret.ObjectName(), version(secret), found) {
		c.secretLoop.Add(secret.ObjectName())
	}
}
