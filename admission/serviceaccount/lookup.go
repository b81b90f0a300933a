// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// accountTimeout is how long the account "default" is waited for at most. Upstream
// tries for one to two seconds.
const accountTimeout = 3 * time.Second

// lookupMode says how far to go for the account "default", which every namespace is
// owed, when it does not exist.
type lookupMode int

const (
	lookOnly lookupMode = iota
	await
	// create means await where there is nothing to create accounts with.
	create
)

// accounts finds accounts: in the cache, else with one request to the apiserver.
type accounts struct {
	from Dependencies
}

// find is the account of that name. Made tells whether it was created here and now. An
// error that IsNotFound has upstream's text.
func (a accounts) find(ctx context.Context, name cache.ObjectName, mode lookupMode) (_ *corev1.ServiceAccount, made bool, _ error) {
	account, err := a.cached(name)
	if err == nil {
		a.from.Metrics.lookup(sourceCache)
		return account, false, nil
	}
	// The cache may be behind. All that follows takes time, which the number of
	// waiters bounds.
	if !a.from.Waiters.enter() {
		return nil, false, errTooManyWaiters
	}
	defer a.from.Waiters.leave()
	if name.Name != defaultAccount {
		mode = lookOnly
	}
	if mode == create && a.from.Ensure != nil {
		return a.created(ctx, name)
	}
	account, err = a.live(ctx, name)
	if mode > lookOnly && apierrors.IsNotFound(err) {
		account, err = a.awaited(ctx, name)
	}
	return account, false, err
}

func (a accounts) cached(name cache.ObjectName) (*corev1.ServiceAccount, error) {
	return a.from.Accounts.ServiceAccounts(name.Namespace).Get(name.Name)
}

// live asks the apiserver once.
func (a accounts) live(ctx context.Context, name cache.ObjectName) (*corev1.ServiceAccount, error) {
	a.from.Metrics.lookup(sourceLive)
	account, err := a.from.Client.ServiceAccounts(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, notFound(name)
	}
	if err != nil {
		return nil, err
	}
	return account, nil
}

// created creates the account and looks it up, for it may have existed with contents of
// its own. It is still missing after that if the namespace is going.
func (a accounts) created(ctx context.Context, name cache.ObjectName) (_ *corev1.ServiceAccount, made bool, _ error) {
	a.from.Metrics.lookup(sourceCreated)
	made, ensureErr := a.from.Ensure(ctx, name.Namespace, name.Name)
	account, err := a.live(ctx, name)
	if ensureErr != nil && apierrors.IsNotFound(err) {
		return nil, false, ensureErr
	}
	return account, made, err
}

// awaited waits until the informer shows the account. If it never does, the account
// does not exist.
func (a accounts) awaited(ctx context.Context, name cache.ObjectName) (account *corev1.ServiceAccount, err error) {
	a.from.Metrics.lookup(sourceAwaited)
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	shown := a.from.Waiters.await(ctx, name, func() bool {
		account, err = a.cached(name)
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
