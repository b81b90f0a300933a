// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// accountTimeout limits the wait for the account "default". Upstream retries for one to two
// seconds.
const accountTimeout = 3 * time.Second

// lookupMode selects what to do if the account "default", which every namespace gets, does not
// exist yet.
type lookupMode int

const (
	lookupOnly lookupMode = iota
	// create waits for the account if this process does not create accounts.
	create
)

// findAccount returns the account from the cache, or else with one request to the apiserver. Made
// reports whether it has just been created. An IsNotFound error has upstream's text.
func (d *Dependencies) findAccount(ctx context.Context, name cache.ObjectName,
	mode lookupMode) (_ *corev1.ServiceAccount, made bool, _ error) {
	account, err := d.cachedAccount(name)
	if err == nil {
		d.Waiters.metrics.lookup(sourceCache)
		return account, false, nil
	}
	// The cache may be stale. All that follows takes time, so the number of waiters is bounded.
	if !d.Waiters.enter(name.Namespace) {
		return nil, false, errTooManyWaiters
	}
	defer d.Waiters.leave(name.Namespace)
	if name.Name != defaultAccount {
		mode = lookupOnly
	}
	if mode == create && d.Ensure != nil {
		return d.createdAccount(ctx, name)
	}
	account, err = d.liveAccount(ctx, name)
	if mode > lookupOnly && apierrors.IsNotFound(err) {
		account, err = d.awaitedAccount(ctx, name)
	}
	return account, false, err
}

func (d *Dependencies) cachedAccount(name cache.ObjectName) (*corev1.ServiceAccount, error) {
	return d.Accounts.ServiceAccounts(name.Namespace).Get(name.Name)
}

// liveAccount reads the account from the apiserver, once.
func (d *Dependencies) liveAccount(ctx context.Context, name cache.ObjectName) (*corev1.ServiceAccount, error) {
	d.Waiters.metrics.lookup(sourceLive)
	account, err := d.Client.ServiceAccounts(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, notFound(name)
	}
	if err != nil {
		return nil, err
	}
	return account, nil
}

// createdAccount creates the account and reads it, because it may have existed with other content.
// It is still missing if the namespace is terminating, or if a quota, a policy or a webhook keeps it away.
func (d *Dependencies) createdAccount(ctx context.Context, name cache.ObjectName) (_ *corev1.ServiceAccount, made bool, _ error) {
	d.Waiters.metrics.lookup(sourceCreated)
	made, ensureErr := d.Ensure(ctx, name.Namespace, name.Name)
	account, err := d.liveAccount(ctx, name)
	if ensureErr != nil && apierrors.IsNotFound(err) {
		err = fmt.Errorf("%w, because it cannot be created: %w", err, ensureErr)
	}
	return account, made, err
}

// awaitedAccount waits until the informer has the account. After the timeout the account counts as
// missing.
func (d *Dependencies) awaitedAccount(ctx context.Context, name cache.ObjectName) (account *corev1.ServiceAccount, err error) {
	d.Waiters.metrics.lookup(sourceAwaited)
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	shown := d.Waiters.await(ctx, name, func() bool {
		account, err = d.cachedAccount(name)
		return err == nil
	})
	if !shown {
		return nil, notFound(name)
	}
	return account, nil
}

func notFound(name cache.ObjectName) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccount"}, name.Name)
}
