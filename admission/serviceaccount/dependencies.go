// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// Dependencies are where the plugin learns about accounts and tokens. All functions
// may be called by several goroutines.
type Dependencies struct {
	// Accounts is the informer's cache. Nothing that it hands out is changed.
	Accounts corev1listers.ServiceAccountLister
	// Client looks up an account that the cache does not have.
	Client corev1client.ServiceAccountsGetter
	// Ensure creates an account; that it exists already is success, and not created.
	// Nil if nobody in this process creates accounts. It is called for the account
	// "default" only.
	Ensure func(ctx context.Context, namespace, name string) (created bool, err error)
	// UsableToken tells whether secret is a token Secret of account that holds a
	// token and is there to stay: right type, right UID, not being deleted, not
	// switched off. Needed in mode secret only.
	UsableToken func(account *corev1.ServiceAccount, secret string) bool
	// Waiters are woken by the informers of accounts and, in mode secret, of token
	// Secrets, see Waiters.Follow.
	Waiters *Waiters
	// Suffix makes the random end of a volume's name: five characters of those that
	// k8s.io/apimachinery/pkg/util/rand uses.
	Suffix func() string
	// Metrics may be nil.
	Metrics *Metrics
}
